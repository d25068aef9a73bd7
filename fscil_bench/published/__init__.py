"""Numbers from the literature, digits as printed; cells known to be wrong carry the reason in `doubt`.

teen_paper.csv holds every cell of the TEEN paper's tables; names.json says which row a method here answers to.
"""

import csv
import json
from dataclasses import dataclass
from importlib import resources

SOURCES = {"teen_paper.csv": "TEEN paper (NeurIPS 2023)"}


@dataclass(frozen=True)
class Cell:
    """One printed number."""

    value: float
    doubt: str  # why it cannot be right, or ""


@dataclass(frozen=True)
class PublishedRow:
    """What the literature prints for a method on a dataset: metric -> session -> number."""

    title: str
    note: str
    source: str
    cells: dict[str, dict[str, Cell]]


def published_row(method: str, dataset: str) -> PublishedRow | None:
    """The row that the method called `method` answers to, if the literature has one."""
    folder = resources.files("fscil_bench.published")
    names = json.loads((folder / "names.json").read_text())
    if method not in names:
        return None
    wanted = names[method]["row"]
    for file, source in SOURCES.items():
        cells: dict[str, dict[str, Cell]] = {}
        for line in csv.DictReader((folder / file).read_text().splitlines()):
            if line["method"] == wanted and line["dataset"] == dataset:
                cells.setdefault(line["metric"], {})[line["session"]] = Cell(float(line["value"]), line["doubt"])
        if cells:
            return PublishedRow(wanted, names[method]["note"], source, cells)
    return None
