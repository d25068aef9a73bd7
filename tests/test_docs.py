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


def tables(text):
    """The Markdown tables of a text: lines by their first cell, cells by the column's name."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        head, _, *lines = ([cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines())
        found.append({cells[0]: dict(zip(head, cells, strict=True)) for cells in lines})
    return found


@pytest.mark.parametrize("dataset", ["cub200", "miniimagenet", "cifar100"])
def test_numbers_in_the_readme_are_those_on_record(cli, dataset):
    """The tables under Results have rows and columns of what `fscil-bench compare --dataset DATASET` prints."""
    done = cli("compare", "--dataset", dataset)
    assert done.code == 0, done.err
    section = (ROOT / "README.md").read_text().partition(f"### {dataset}")[2].partition("\n##")[0]
    (shown,) = tables(section)
    printed = tables(done.out)[0]
    assert len(shown) > 8
    for name, cells in shown.items():
        assert cells.items() <= printed[name].items()


def test_the_page_of_methods_is_current(cli):
    """docs/methods.md is what `fscil-bench ls methods --markdown` prints."""
    done = cli("ls", "methods", "--markdown")
    assert done.code == 0, done.err
    assert (ROOT / "docs" / "methods.md").read_text() == done.out
