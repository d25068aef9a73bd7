"""What the docs say is so: commands exist, numbers are those on record."""

import json
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


DATASETS = {"CUB-200": "cub200", "miniImageNet": "miniimagenet", "CIFAR-100": "cifar100"}


def analyses():
    """The tables of docs/analyses.md by their first column's name."""
    text = (ROOT / "docs" / "analyses.md").read_text()
    text = re.sub(r"^ +\|", "|", text, flags=re.MULTILINE)  # some are inside a list
    return {next(iter(next(iter(found.values())))): found for found in tables(text)}


def shown(summary):
    """`mean (low to high)`."""
    mean, low, high = (f"{summary[part]:+.2f}" for part in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


@pytest.mark.parametrize("place", DATASETS)
def test_what_the_docs_say_of_offsets_is_what_the_analysis_says(cli, place):
    done = cli("analyze", "offset", "teen", "--dataset", DATASETS[place], "--json")
    over = json.loads(done.out)["methods"]["teen"]["over_baseline"]
    cells = [row[place] for row in analyses()["TEEN minus ProtoNet"].values()]
    assert cells == [shown(over[key]) for key in ("gain", "by_offset", "beyond", "more_area")]


@pytest.mark.parametrize("place", DATASETS)
def test_what_the_docs_say_of_oracles_is_what_the_analysis_says(cli, place):
    done = cli("analyze", "prototypes", "teen", "--dataset", DATASETS[place], "--json")
    centred = json.loads(done.out)["methods"]["teen"]["centred"]
    cells = [row[place] for row in analyses()["TEEN's prototypes"].values()]
    digits = {"before": 4, "after": 4, "closer": 1}
    assert cells == [f"{centred[key]['mean']:.{count}f}" for key, count in digits.items()]


def test_what_the_docs_say_of_alpha_is_what_the_sweep_says(cli):
    grid = ("--grid", "shift_weight=0,0.1,0.9", "--json")
    data = json.loads(cli("sweep", "--method", "teen", "--dataset", "cifar100-val", *grid).out)
    found = [point["summary"] for point in (*data["points"], data["given"]["variant=paper"])]
    cells = analyses()["weight of the base mixture"].values()
    for row, summary in zip(cells, found, strict=True):
        expected = [f"{summary[key]['mean']:.2f}" for key in ("avg_acc", "hmean", "new_acc")]
        assert [row[name] for name in ("AvgAcc", "HMean", "NAcc")] == expected


@pytest.mark.parametrize("place", DATASETS)
def test_what_the_docs_say_of_recorded_rows_is_on_record(cli, place):
    data = json.loads(cli("compare", "--dataset", DATASETS[place], "--json").out)
    means = {row["label"]: row["summary"]["new_acc"]["mean"] for row in data["rows"]}
    for name, row in analyses()["NAcc"].items():
        assert row[place] == f"{means[name.split('`')[1]]:.2f}"
    paired = {(pair["label"], pair["minus"]): pair["difference"] for pair in data["episodes"]["paired"]}
    for name, row in analyses()[""].items():
        shots, (ours, theirs) = name[2:].partition("s")[0], name.split("`")[1::2]
        assert row[place] == shown(paired[ours, theirs][shots])
