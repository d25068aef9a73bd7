"""Numbers from the literature, digits as printed; cells known to be wrong carry the reason in `doubt`.

teen_paper.csv holds every cell of the TEEN paper's tables, elsewhere.csv what other repositories state; names.json says
which of those rows a method here answers to.
"""

import csv
import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

FILES = ("teen_paper.csv", "elsewhere.csv")


@dataclass(frozen=True)
class Cell:
    """One printed number."""

    value: float
    doubt: str  # why it cannot be right or be compared, or ""


@dataclass(frozen=True)
class PublishedRow:
    """What the literature prints for a method on a dataset."""

    title: str
    dataset: str
    source: str
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)  # metric -> session -> number


@cache
def published_rows(dataset: str) -> list[PublishedRow]:
    """Every row of the literature on a dataset, in the order of the files."""
    folder = resources.files("fscil_bench.published")
    rows: dict[str, PublishedRow] = {}
    for file in FILES:
        for line in csv.DictReader((folder / file).read_text().splitlines()):
            if line["dataset"] == dataset:
                source = line["source"].split(", table")[0]
                row = rows.setdefault(line["method"], PublishedRow(line["method"], dataset, source))
                cell = Cell(float(line["value"]), line["doubt"])
                row.cells.setdefault(line["metric"], {})[line["session"]] = cell
    return list(rows.values())


def published_row(method: str, dataset: str) -> tuple[PublishedRow, str] | None:
    """The row that the method called `method` answers to, if the literature has one, and how far it is the same."""
    names = json.loads((resources.files("fscil_bench.published") / "names.json").read_text())
    for row in published_rows(dataset):
        if method in names and row.title == names[method].get("row"):
            return row, names[method]["note"]
    return None


def published_episodes(method: str, dataset: str) -> dict[str, float]:
    """What the literature prints for the method in few-shot episodes: "5w1s", "5w5s". Nothing, if it does not."""
    names = json.loads((resources.files("fscil_bench.published") / "names.json").read_text())
    title = names.get(method, {}).get("few_shot_row")
    cells = next((row.cells for row in published_rows(dataset) if row.title == title), {})
    return {key.removeprefix("fsl_"): by["fsl"].value for key, by in cells.items() if key.startswith("fsl_")}
