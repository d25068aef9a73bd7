"""What is declared is what is on disk, and what is shipped is whole."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fscil_bench.backbones.extract import session0_accuracy
from fscil_bench.backbones.store import WEIGHTS, Backbone, list_backbones, open_backbone
from fscil_bench.errors import UsageError
from fscil_bench.evaluate import Arena

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


BENCHMARKS = ("cifar100", "cub200", "miniimagenet")
TEST_IMAGES = {  # by session, as the literature counts them
    "cifar100": [6000 + 500 * t for t in range(9)],
    "cub200": [2864, 3143, 3430, 3728, 4028, 4326, 4614, 4911, 5206, 5494, 5794],
    "miniimagenet": [6000 + 500 * t for t in range(9)],
}


@pytest.fixture(scope="module", params=BENCHMARKS)
def arena(request):
    return Arena(request.param)


def test_default_backbones_are_shipped(arena):
    assert arena.backbone.shipped
    assert arena.backbone.id == arena.protocol.default_backbone


def test_shipped_banks_have_the_known_test_images(arena):
    targets = arena.split.targets[arena.split.test_rows]
    assert [int((targets < seen).sum()) for seen in arena.protocol.seen] == TEST_IMAGES[arena.protocol.name]
    assert not arena.split.bank.is_test[arena.split.base_rows].any()


def test_standard_supports_are_training_images_of_the_right_classes(arena):
    if arena.protocol.support_key != "id":
        with pytest.raises(UsageError, match="official archive"):
            arena.draws(["standard"])
        return
    rows = arena.draws(["standard"])[0].rows
    assert rows.shape == (len(arena.protocol.new_classes), 5)
    assert len(np.unique(rows)) == rows.size
    assert (arena.split.targets[rows] == np.array(arena.protocol.new_classes)[:, None]).all()
    assert not arena.split.bank.is_test[rows].any()


def test_session_0_is_what_the_card_says(arena):
    got = session0_accuracy(arena.split.bank, arena.protocol)
    card = arena.backbone.card["session0"][arena.protocol.name]
    assert got["prototypes"] == pytest.approx(card["prototypes"], abs=0.05)  # the card's is of unrounded features
    assert got["prototypes"] >= {"cifar100": 70, "cub200": 68, "miniimagenet": 50}[arena.protocol.name]


def test_shipped_records_are_whole_and_current():
    from fscil_bench.leaderboard.rows import load_rows, shipped_root

    loaded = load_rows([(shipped_root() / "records", False)])
    assert loaded.problems == []
    for dataset in BENCHMARKS:
        assert {row.method for row in loaded.rows if row.protocol == dataset} >= {"protonet", "teen", "simteen"}
        assert (shipped_root() / f"{dataset}.md").is_file()


@pytest.mark.parametrize("backbone", shipped(), ids=lambda backbone: backbone.id)
def test_shipped_files_match_their_card(backbone):
    """The repository has all files; what is installed may lack large weights, and what it has is whole."""
    in_repository = open_backbone(ROOT / "fscil_bench" / "artifacts" / backbone.id)
    assert in_repository.card == backbone.card
    assert {path.name for path in in_repository.folder.iterdir()} == {"card.json", *backbone.card["files"]}
    for name in backbone.card["files"]:
        assert in_repository.file(name).is_file()
        assert name == WEIGHTS or backbone.file(name).is_file()


def test_the_notice_names_every_backbone_that_starts_from_weights_of_others():
    notice = (ROOT / "NOTICE").read_text()
    others = [backbone.id for backbone in shipped() if backbone.card["pretraining"] != "none"]
    assert len(others) >= 3
    assert [name for name in others if f"fscil_bench/artifacts/{name}/{WEIGHTS}" not in notice] == []


def test_the_wheel_has_every_bank_but_only_small_weights():
    root = ROOT / "fscil_bench" / "artifacts"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["fscil_bench.artifacts"]
    packed = {path for pattern in patterns for path in root.glob(pattern)}
    everything = {path for path in root.glob("*/*") if path.is_file() and path.parent.name != "__pycache__"}
    left_out = everything - packed
    assert all(path.name == WEIGHTS for path in left_out)
    assert {path.parent.name.split("-")[0] for path in left_out} == {"cub200", "miniimagenet"}
    assert all(path.stat().st_size < 2_000_000 for path in packed if path.name == WEIGHTS)


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("ls", "methods"),
        ("ls", "backbones"),
        ("run", "--help"),
        ("backbone", "train", "--help"),
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
