"""What rows say by session: a CSV, a picture of three panels, the last session and the step from each row to the next.

Published rows of the same methods stand beside them. They are of other backbones and one other draw, so they are shown
and marked, never tested against.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fscil_bench.analysis.plots import Band, Trace, traces
from fscil_bench.analysis.sessions import Series
from fscil_bench.files import plain
from fscil_bench.leaderboard.statistics import Difference, difference, holm
from fscil_bench.markdown import counted, csv_text, number, spread
from fscil_bench.metrics import SHORT, Summary, summarise
from fscil_bench.protocols import Protocol
from fscil_bench.published import PublishedRow, published_row

METRICS = ("avg_acc", "hmean", "new_acc")
ROW_COLUMNS = ("row", "backbone", "numbers", "draws", *(SHORT[metric] for metric in METRICS))
STEP_COLUMNS = ("step", "pairs", *(text for metric in METRICS for text in (f"Δ {SHORT[metric]} (95 %)", "p")))
NOT_PAIRED = "not paired"
ONE_DRAW = "one draw"  # the same for both rows, but no spread to tell of
OTHER = "other backbone and draw"  # what published numbers are of


@dataclass(frozen=True)
class Published:
    """What the literature prints for the method of a row."""

    row: PublishedRow
    note: str  # how far it is the same method
    like: int  # the first row of that method

    @property
    def label(self) -> str:
        return f"{self.row.title}, published"


@dataclass(frozen=True)
class Step:
    """A row minus the one before it, after the last session."""

    row: str
    minus: str
    means: dict[str, float]  # plain differences of the rows' means
    paired: dict[str, Difference]  # p-values corrected after Holm over all steps; empty where they cannot be paired
    obstacle: str  # why they cannot, or ""

    def cells(self) -> list[str]:
        name = f"{self.row} minus {self.minus}"
        if self.paired:
            gaps = [self.paired[metric] for metric in METRICS]
            return [name, str(gaps[0].summary.n), *(text for gap in gaps for text in gap.cells())]
        why = self.obstacle if self.obstacle == ONE_DRAW else NOT_PAIRED
        plain_cells = (f"{number(self.means[metric], signed=True)} ({why})" for metric in METRICS)
        return [name, f"– ({self.obstacle})", *(text for cell in plain_cells for text in (cell, "–"))]

    def as_data(self) -> dict[str, Any]:
        paired = {metric: {**plain(asdict(gap.summary)), "p_holm": plain(gap.p)} for metric, gap in self.paired.items()}
        return {
            "row": self.row,
            "minus": self.minus,
            "difference_of_means": plain(self.means),
            "paired": paired or None,
            "not_paired_because": self.obstacle or None,
        }


@dataclass(frozen=True)
class SessionsReport:
    """Rows by session, in the order given."""

    protocol: Protocol
    series: Sequence[Series]

    @cached_property
    def summaries(self) -> dict[str, dict[str, dict[int, Summary]]]:
        """Row -> metric -> session -> summary over draws; a session where a number is not defined is left out."""
        return {
            one.label: {
                metric: {
                    session: summarise(values)
                    for session, values in enumerate(one.row.by_session(metric).T)
                    if not np.isnan(values).any()
                }
                for metric in METRICS
            }
            for one in self.series
        }

    @cached_property
    def published(self) -> list[Published]:
        """One for each method that the literature has on this dataset, however many rows it has here."""
        methods = [one.row.method for one in self.series]
        found = {method: published_row(method, self.protocol.name) for method in methods}
        return [Published(*known, methods.index(method)) for method, known in found.items() if known is not None]

    @cached_property
    def steps(self) -> list[Step]:
        couples = list(pairwise(self.series))
        found: dict[tuple[int, str], Difference] = {}
        for i, (before, after) in enumerate(couples):
            for metric in METRICS:
                gap = difference(after.row, before.row, metric)
                if gap is not None:
                    found[i, metric] = gap
        adjusted = dict(zip(found, holm([gap.p for gap in found.values()]), strict=True))
        corrected = {key: Difference(gap.summary, adjusted[key]) for key, gap in found.items()}
        steps = []
        for i, (before, after) in enumerate(couples):
            means = {metric: self._last(after, metric).mean - self._last(before, metric).mean for metric in METRICS}
            paired = {metric: corrected[i, metric] for metric in METRICS if (i, metric) in corrected}
            obstacle = "" if paired else ONE_DRAW if after.row.bank == before.row.bank else "other bank"
            steps.append(Step(after.label, before.label, means, paired, obstacle))
        return steps

    def _last(self, one: Series, metric: str) -> Summary:
        return self.summaries[one.label][metric][self.protocol.sessions]

    def rows(self) -> list[list[str]]:
        """Cells of the last session, published rows after the measured ones."""
        lines = []
        for one in self.series:
            cells = [one.label, one.row.backbone, one.source, str(len(one.row.draws))]
            lines.append([*cells, *(spread(self._last(one, metric)) for metric in METRICS)])
        for known in self.published:
            cells = [known.label, OTHER, known.row.source, "–"]
            lines.append([*cells, *(self._printed(known, metric) for metric in METRICS)])
        return lines

    def _printed(self, known: Published, metric: str) -> str:
        cell = known.row.cells.get(metric, {}).get(str(self.protocol.sessions))
        return number(cell.value) + ("?" if cell.doubt else "") if cell else "–"

    def step_rows(self) -> list[list[str]]:
        return [step.cells() for step in self.steps]

    def caveats(self) -> list[str]:
        """What to know of the published rows, and why some of their cells are in doubt; equal reasons in one line."""
        lines = []
        for known in self.published:
            lines.append(f"{known.label}: {known.row.source}; {known.note}; {OTHER}")
            doubts: dict[str, list[str]] = {}
            for metric in METRICS:
                for session, cell in known.row.cells.get(metric, {}).items():
                    if cell.doubt:
                        doubts.setdefault(cell.doubt, []).append(f"{SHORT[metric]} {session}")
            lines += [f"  ? {', '.join(places)}: {doubt}" for doubt, places in doubts.items()]
        return lines

    def csv(self) -> str:
        """One line for every row, session and metric; what is published has no spread."""
        lines: list[dict[str, Any]] = []
        for one in self.series:
            about = {"backbone": one.row.backbone, "source": one.source, "doubt": ""}
            for metric in METRICS:
                for session, summary in self.summaries[one.label][metric].items():
                    lines.append({"row": one.label, "session": session, "metric": metric, **asdict(summary), **about})
        none = dict.fromkeys(("sd", "low", "high", "n"), "")
        for known in self.published:
            for metric in METRICS:
                for printed, cell in known.row.cells.get(metric, {}).items():
                    about = {"backbone": OTHER, "source": f"published: {known.row.source}", "doubt": cell.doubt}
                    place = {"row": known.label, "session": int(printed), "metric": metric}
                    lines.append({**place, "mean": cell.value, **none, **about})
        return csv_text(lines)

    def draw(self, *paths: Path) -> None:
        """One panel a metric; the format is that of the path's suffix."""
        backbones = dict.fromkeys(one.row.backbone for one in self.series)
        where = f", {next(iter(backbones))}" if len(backbones) == 1 else ""
        *fewer, most = sorted({len(one.row.draws) for one in self.series})
        draws = " or ".join([*map(str, fewer), counted(most, "draw")])
        title = f"{self.protocol.title}{where}; mean of {draws}, band: its 95 % interval"
        if self.published:
            title += f"\ndashed: published, {OTHER} (×: number in doubt)"
        panels = {SHORT[metric]: self._traces(metric) for metric in METRICS}
        traces(paths, title, "session", "%", range(self.protocol.sessions + 1), panels)

    def _traces(self, metric: str) -> list[Trace]:
        found = []
        for i, one in enumerate(self.series):
            by = self.summaries[one.label][metric]
            mean, low, high = (np.array([getattr(s, part) for s in by.values()]) for part in ("mean", "low", "high"))
            found.append(Trace(one.label, Band(np.array(list(by), dtype=float), mean, low, high), style=i))
        for known in self.published:
            cells = {int(session): cell for session, cell in known.row.cells.get(metric, {}).items()}
            x, printed = np.array(list(cells), dtype=float), np.array([cell.value for cell in cells.values()])
            doubted = np.array([bool(cell.doubt) for cell in cells.values()], dtype=bool)
            nothing = np.full(len(x), np.nan)
            label = f"{known.label} ({OTHER})"
            found.append(Trace(label, Band(x, printed, nothing, nothing), style=known.like, doubted=doubted))
        return found

    def as_data(self) -> dict[str, Any]:
        return {
            "dataset": self.protocol.name,
            "sessions": self.protocol.sessions,
            "rows": [
                {
                    "row": one.label,
                    "method": one.row.method,
                    "backbone": one.row.backbone,
                    "bank_sha256": one.row.bank,
                    "source": one.source,
                    "draws": one.row.draws,
                    "by_session": {
                        metric: [{"session": session, **plain(asdict(s))} for session, s in by.items()]
                        for metric, by in self.summaries[one.label].items()
                    },
                }
                for one in self.series
            ],
            "steps": [step.as_data() for step in self.steps],
            "published": [
                {
                    "row": known.label,
                    "method": self.series[known.like].row.method,
                    "of": OTHER,
                    "source": known.row.source,
                    "note": known.note,
                    "by_session": {
                        metric: [
                            {"session": int(session), "value": cell.value, "doubt": cell.doubt or None}
                            for session, cell in known.row.cells.get(metric, {}).items()
                        ]
                        for metric in METRICS
                    },
                }
                for known in self.published
            ],
        }
