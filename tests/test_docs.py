"""What the docs say is so: commands exist, numbers are those on record."""

import re
import shlex
from pathlib import Path

import click
import pytest

from fscil_bench.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CALL = re.compile(r"fscil-bench ((?:[\w.=/+-]+ ?)+)")


def calls() -> list[str]:
    """Every command line that the docs show."""
    found = (call for page in PAGES for call in CALL.findall(page.read_text()))
    return sorted({call.strip() for call in found if call.split()[0] in main.list_commands(None)})


@pytest.mark.parametrize("call", calls())
def test_commands_in_the_docs_exist(call):
    words = shlex.split(call)
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        word = words.pop(0)
        found = command.get_command(click.Context(command), word)
        assert found is not None, f"`fscil-bench {call}`: no command {word}"
        command = found
    options = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        assert not word.startswith("--") or word in options, f"`fscil-bench {call}`: no option {word}"


@pytest.mark.parametrize("dataset", ["cub200", "miniimagenet", "cifar100"])
def test_numbers_in_the_readme_are_those_on_record(cli, dataset):
    """The tables under Results are rows of what `fscil-bench compare --dataset DATASET` prints."""
    done = cli("compare", "--dataset", dataset)
    assert done.code == 0, done.err
    section = (ROOT / "README.md").read_text().partition("## Results")[2].partition("\n## ")[0]
    shown = section.partition(f"### {dataset}")[2].partition("### ")[0]
    lines = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(lines) > 8
    assert [line for line in lines if line not in done.out.splitlines()] == []


def test_the_page_of_methods_is_current(cli):
    """docs/methods.md is what `fscil-bench ls methods --markdown` prints."""
    done = cli("ls", "methods", "--markdown")
    assert done.code == 0, done.err
    assert (ROOT / "docs" / "methods.md").read_text() == done.out
