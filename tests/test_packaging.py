"""What is declared is what is on disk, and what is shipped is whole."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fscil_bench.backbones.store import Backbone, list_backbones
from fscil_bench.protocols import load_protocol

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]


def test_every_package_folder_is_listed():
    found = set()
    for name, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join([name, *init.parent.relative_to(ROOT / folder).parts]))
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_method_file_is_registered():
    declared = PROJECT["project"]["entry-points"]["fscil_bench.methods"].values()
    modules = {value.split(":")[0].removeprefix("fscil_bench_methods.") for value in declared}
    assert modules == {path.stem for path in (ROOT / "methods").glob("*.py")} - {"__init__"}


def test_versions_agree():
    from fscil_bench import __version__

    assert PROJECT["project"]["version"] == __version__


def shipped() -> list[Backbone]:
    return [backbone for backbone in list_backbones() if backbone.shipped]


def test_the_default_cifar100_backbone_is_shipped():
    assert load_protocol("cifar100").default_backbone in [backbone.id for backbone in shipped()]


def test_shipped_records_are_whole_and_current():
    from fscil_bench.leaderboard.rows import load_rows, shipped_root

    loaded = load_rows([(shipped_root() / "records", False)])
    assert loaded.problems == []
    assert {row.method for row in loaded.rows} >= {"protonet", "teen", "simteen"}
    assert (shipped_root() / "cifar100.md").is_file()


@pytest.mark.parametrize("backbone", shipped(), ids=lambda backbone: backbone.id)
def test_shipped_files_match_their_card(backbone):
    assert {path.name for path in backbone.folder.iterdir()} == {"card.json", *backbone.card["files"]}
    for name in backbone.card["files"]:
        assert backbone.file(name).is_file()


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("ls", "methods"),
        ("ls", "backbones"),
        ("run", "--help"),
        ("sweep", "--help"),
        ("analyze", "offset", "--help"),
        ("sweep", "--method", "x", "--dataset", "y", "--grid", "a=1"),
        ("analyze", "offset", "x", "--dataset", "cifar100"),
        ("run", "--method", "x", "--dataset", "y"),
    ],
)
def test_no_torch_for_help_listings_and_name_errors(args):
    code = (
        "import sys\nfrom fscil_bench.cli import entry\n"
        f"sys.argv = ['fscil-bench', *{args!r}]\n"
        "try:\n    entry()\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
