"""Rows of one bank side by side, each with its paired differences from a baseline."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fscil_bench.backbones.store import Backbone
from fscil_bench.errors import UsageError
from fscil_bench.leaderboard.measuring import Task
from fscil_bench.leaderboard.rows import Row, load_rows, shipped_root
from fscil_bench.leaderboard.statistics import COMPARED, Difference, common_baseline, difference, holm, percentile
from fscil_bench.leaderboard.tables import ranked
from fscil_bench.metrics import HEADLINE, Summary, summarise


@dataclass(frozen=True)
class Line:
    """One row of a comparison."""

    row: Row
    summaries: dict[str, Summary]  # of the headline numbers over random draws
    differences: dict[str, Difference]  # from the baseline, p-values corrected after Holm over the whole comparison
    percentiles: dict[str, float]  # of the standard draw among the random ones


@dataclass(frozen=True)
class Comparison:
    lines: list[Line]
    baseline: Row | None

    @classmethod
    def of(cls, rows: Sequence[Row], baseline: str | None, sort: str) -> "Comparison":
        """Rank rows by `sort` and compare each with the row called `baseline`, or with what most rows build on."""
        measured = [row for row in rows if not row.failed and row.draws]
        name = baseline or common_baseline(measured)
        base = next((row for row in measured if row.label == name), None)
        if baseline is not None and base is None:
            raise UsageError(f"the baseline {baseline} has no usable record on this dataset and backbone")
        order = ranked(rows, sort)
        found: dict[tuple[int, str], Difference] = {}
        for i, row in enumerate(order):
            for metric in COMPARED if base is not None and row is not base else ():
                gap = difference(row, base, metric) if base is not None else None
                if gap is not None:
                    found[i, metric] = gap
        adjusted = holm([gap.p for gap in found.values()])
        corrected = {key: Difference(gap.summary, p) for (key, gap), p in zip(found.items(), adjusted, strict=True)}
        return cls([_line(i, row, corrected) for i, row in enumerate(order)], base)

    def as_data(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline.label if self.baseline else None,
            "rows": [
                {
                    "method": line.row.method,
                    "label": line.row.label,
                    "settings": line.row.record["method"]["settings"],
                    "backbone": line.row.backbone,
                    "own": line.row.own,
                    "complete": line.row.complete,
                    "failed": line.row.failed,
                    "draws": len(line.row.draws),
                    "summary": {key: _plain(asdict(value)) for key, value in line.summaries.items()},
                    "difference": {
                        key: {**_plain(asdict(value.summary)), "p_holm": value.p}
                        for key, value in line.differences.items()
                    },
                    "standard": {key: line.row.standard(key) for key in HEADLINE},
                    "standard_percentile": line.percentiles,
                }
                for line in self.lines
            ],
        }


def rows_for(dataset: str, backbone: Backbone, methods: Sequence[str], own: Path) -> tuple[list[Row], list[str]]:
    """Shipped and own rows of some methods (or all) on a backbone, and the records that had to be left out."""
    loaded = load_rows([(shipped_root() / "records", False), (own, True)])
    rows = [
        row
        for row in loaded.rows
        if row.protocol == dataset and row.backbone == backbone.id and (not methods or row.method in methods)
    ]
    return rows, loaded.problems


def missing_tasks(rows: Sequence[Row], methods: Sequence[str], backbone: Backbone, *, named: bool) -> list[Task]:
    """What must be measured before the methods can be shown: those without a record, costly ones only if named."""
    from fscil_bench.registry import load_method

    tasks = []
    for name in methods:
        if any(row.method == name for row in rows):
            continue
        kind = load_method(name)
        fits = kind.recipe is None or backbone.card["recipe"]["name"] == kind.recipe
        if named or (fits and not kind.costly):
            tasks.append(Task(name, backbone.card["dataset"], str(backbone.folder)))
    return tasks


def _line(i: int, row: Row, differences: dict[tuple[int, str], Difference]) -> Line:
    summaries = {} if row.failed or not row.draws else {key: summarise(row.headline(key)) for key in HEADLINE}
    percentiles = {}
    for key in HEADLINE if summaries else ():
        standard = row.standard(key)
        if standard is not None:
            percentiles[key] = percentile(standard, row.headline(key))
    return Line(row, summaries, {m: d for (j, m), d in differences.items() if j == i}, percentiles)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if value != value else value for key, value in values.items()}  # noqa: PLR0124 (NaN)
