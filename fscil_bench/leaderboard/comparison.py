"""Rows of one bank side by side, each with its paired differences from a baseline."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fscil_bench.backbones.store import Backbone, bank_name
from fscil_bench.errors import FscilError
from fscil_bench.files import plain
from fscil_bench.leaderboard.episode_comparison import DEFINITION as EPISODES_DEFINITION
from fscil_bench.leaderboard.measuring import Task
from fscil_bench.leaderboard.rows import Loaded, Row, load_rows, ranked, shipped_root
from fscil_bench.leaderboard.statistics import (
    COMPARED,
    TESTS,
    Difference,
    common_baseline,
    corrected,
    difference,
    family,
    percentile,
)
from fscil_bench.metrics import HEADLINE, Summary, summarise
from fscil_bench.protocols import Protocol
from fscil_bench.registry import configure
from fscil_bench.words import HEADLINE_DEFINITIONS


@dataclass(frozen=True)
class Line:
    """One row of a comparison."""

    row: Row
    summaries: dict[str, Summary]  # of the headline numbers over random draws
    differences: dict[str, Difference]  # from the baseline, p-values corrected after Holm over a family of rows
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
            raise FscilError(f"the baseline {baseline} has no usable row on this dataset and backbone")
        order = ranked(rows, sort)
        tested = _differences(order, base) if base is not None else {}
        return cls([_line(i, row, tested) for i, row in enumerate(order)], base)

    def difference_cells(self) -> list[list[str]]:
        """Text for a table: name, number of pairs, then mean with interval and p-value for every compared metric."""
        lines = []
        for line in self.lines:
            if line.row is self.baseline or not line.summaries:
                continue
            gaps = [line.differences.get(metric) for metric in COMPARED]
            cells = [line.row.shown, str(max(gap.summary.n if gap else 0 for gap in gaps))]
            lines.append([*cells, *(text for gap in gaps for text in (gap.cells() if gap else ["–", "–"]))])
        return lines

    def as_data(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline.label if self.baseline else None,
            "rows": [
                {
                    **line.row.facts,
                    "draws": len(line.row.draws),
                    "summary": {key: plain(asdict(value)) for key, value in line.summaries.items()},
                    "difference": {
                        key: {**plain(asdict(value.summary)), "p_holm": plain(value.p)}
                        for key, value in line.differences.items()
                    },
                    "standard": {key: line.row.standard(key) for key in HEADLINE},
                    "standard_percentile": line.percentiles,
                }
                for line in self.lines
            ],
        }


def definitions() -> dict[str, str]:
    """What the numbers of a comparison are, by their names in JSON."""
    return {**HEADLINE_DEFINITIONS, "episodes": EPISODES_DEFINITION, "p_holm": TESTS}


def rows_for(protocol: Protocol, backbone: Backbone, methods: Sequence[str], own: Path) -> Loaded:
    """Shipped and own rows of some methods (or all) on a backbone's bank, and the records that had to be left out."""
    loaded = load_rows([(shipped_root() / "records", False), (own, True)], [backbone], protocol.name)
    bank = backbone.checksum(bank_name(protocol.dataset))

    def wanted(row: Row) -> bool:
        return row.protocol == protocol.name and row.bank == bank and (not methods or row.method in methods)

    episodes = [row for row in loaded.episodes if wanted(row)]
    stale = [row for row in episodes if row.own and _of_older_code(row)]
    problems = [f"{row.path} was measured with other code: `fscil-bench fsl` measures it anew" for row in stale]
    current = [row for row in episodes if row not in stale]
    return Loaded([row for row in loaded.rows if wanted(row)], [*loaded.problems, *problems], current)


def missing_tasks(rows: Sequence[Row], tasks: Sequence[Task]) -> list[Task]:
    """The tasks without a full row that the present code made, and the user's own rows that older code made."""
    fresh = [row for row in rows if is_current(row)]
    have = [(row.method, row.given) for row in fresh if row.complete]
    stale = [row for row in rows if row not in fresh and not row.failed]
    again = [Task(row.method, row.protocol, tasks[0].backbone, row.given) for row in stale if tasks]
    wanted = [*tasks, *(task for task in again if task not in tasks)]
    return [task for task in wanted if (task.method, task.settings) not in have]


def is_current(row: Row) -> bool:
    """Whether its numbers may stand for what the present code measures; for shipped rows `check` sees to that."""
    return not row.failed and not (row.own and _of_older_code(row))


def _of_older_code(row: Row) -> bool:
    """Whether the method, or the harness under it, has changed since the row was measured."""
    from fscil_bench.code import code_sha256

    try:
        method = configure(row.method, row.protocol, row.given).method
    except FscilError:
        return False  # the method is gone: nothing newer can be measured
    return code_sha256(method, row.kind) != str(row.record["method"]["code_sha256"])


def _differences(rows: Sequence[Row], baseline: Row) -> dict[tuple[int, str], Difference]:
    """By the row's place and metric, with corrected p-values."""
    found = {
        (i, metric): gap
        for i, row in enumerate(rows)
        for metric in (COMPARED if row is not baseline else ())
        if (gap := difference(row, baseline, metric)) is not None
    }
    return corrected(found, {key: family(rows[key[0]], baseline) for key in found})


def _line(i: int, row: Row, differences: dict[tuple[int, str], Difference]) -> Line:
    summaries = {} if row.failed or not row.draws else {key: summarise(row.headline(key)) for key in HEADLINE}
    percentiles = {}
    for key in HEADLINE if summaries else ():
        standard = row.standard(key)
        if standard is not None:
            percentiles[key] = percentile(standard, row.headline(key))
    return Line(row, summaries, {m: d for (j, m), d in differences.items() if j == i}, percentiles)
