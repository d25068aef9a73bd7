"""What the offset curves of several methods say: a table, the mean curves as CSV, a picture."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fscil_bench.analysis.offset import Curves, Reach, reach
from fscil_bench.analysis.plots import Band, curves
from fscil_bench.files import plain
from fscil_bench.markdown import csv_text, interval, number, spread, summary_cells
from fscil_bench.metrics import Summary, summarise

STEP = 0.5  # between the base accuracies at which curves are averaged
COLUMNS = (
    "method",
    "draws",
    "BAcc",
    "NAcc",
    "area",
    "Δ area (95 %)",
    "Δ NAcc (95 %)",
    "Δ NAcc by offset (95 %)",
    "beyond the offset (95 %)",
    "share by offset, % (95 %)",
)


@dataclass(frozen=True)
class OffsetReport:
    """Curves of methods by label, and which of them is the baseline."""

    dataset: str
    backbone: str
    baseline: str
    traced: Mapping[str, Curves]

    @cached_property
    def points(self) -> dict[str, dict[str, Summary]]:
        """Of each method: BAcc and NAcc without an offset, and the area."""
        found = {}
        for label, of in self.traced.items():
            base, new = of.operating_point()
            found[label] = {
                key: summarise(v) for key, v in (("base_acc", base), ("new_acc", new), ("area", of.areas()))
            }
        return found

    @cached_property
    def reached(self) -> dict[str, Reach]:
        """Of each method but the baseline."""
        base = self.traced[self.baseline]
        return {label: reach(of, base) for label, of in self.traced.items() if label != self.baseline}

    @cached_property
    def mean_curves(self) -> dict[str, list[tuple[float, Summary]]]:
        """NAcc at base accuracies that every draw of the method reaches."""
        found = {}
        for label, of in self.traced.items():
            at = np.arange(0, of.highest_base_acc().min() + 1e-9, STEP)
            values = of.new_acc_at(np.tile(at, (len(of.draws), 1)))
            found[label] = [(float(a), summarise(column)) for a, column in zip(at, values.T, strict=True)]
        return found

    def rows(self) -> list[list[str]]:
        lines = []
        for label, point in self.points.items():
            line = [label, str(point["area"].n), *map(spread, point.values())]
            if label == self.baseline:
                lines.append([*line, *["–"] * (len(COLUMNS) - len(line))])
                continue
            gap = self.reached[label]
            changes = (gap.more_area, gap.gain, gap.by_offset, gap.beyond)
            lines.append([*line, *(_with_interval(s, signed=True) for s in changes), _with_interval(gap.share)])
        return lines

    def csv(self) -> str:
        lines = []
        for label, point in self.points.items():
            line: dict[str, Any] = {**self._about(label), "draws": point["area"].n}
            for key, summary in point.items():
                line |= summary_cells(key, summary)
            gap = self.reached.get(label)
            for key in Reach.__dataclass_fields__:
                line |= summary_cells(key, None if gap is None else getattr(gap, key))
            lines.append(line)
        return csv_text(lines)

    def curve_csv(self) -> str:
        return csv_text(
            [
                {**self._about(label), "base_acc": at, "draws": summary.n, **summary_cells("new_acc", summary)}
                for label, curve in self.mean_curves.items()
                for at, summary in curve
            ]
        )

    def draw(self, path: Path) -> None:
        bands = {}
        for label, curve in self.mean_curves.items():
            x = np.array([at for at, _ in curve])
            mean, low, high = (np.array([getattr(s, part) for _, s in curve]) for part in ("mean", "low", "high"))
            point = self.points[label]
            bands[label] = Band(x, mean, low, high, (point["base_acc"].mean, point["new_acc"].mean))
        draws = " or ".join(map(str, sorted({len(of.draws) for of in self.traced.values()})))
        title = f"{self.dataset}, {self.backbone}: an offset on all new-class scores; marks: without it\n"
        title += f"last session, mean of {draws} draws, band: its 95 % interval"
        curves(path, title, "BAcc", "NAcc", bands)

    def as_data(self) -> dict[str, Any]:
        def data(summaries: Mapping[str, Summary]) -> Any:
            return plain({key: asdict(summary) for key, summary in summaries.items()})

        return {
            "dataset": self.dataset,
            "backbone": self.backbone,
            "baseline": self.baseline,
            "methods": {
                label: {
                    **data(point),
                    "over_baseline": data(vars(self.reached[label])) if label in self.reached else None,
                    "curve": [{"base_acc": at, "new_acc": plain(asdict(s))} for at, s in self.mean_curves[label]],
                }
                for label, point in self.points.items()
            },
        }

    def _about(self, label: str) -> dict[str, str]:
        return {"dataset": self.dataset, "backbone": self.backbone, "method": label}


def _with_interval(summary: Summary, *, signed: bool = False) -> str:
    """`mean (low to high)`, or a dash for what is not defined."""
    if math.isnan(summary.mean):
        return "–"
    return f"{number(summary.mean, signed=signed)} ({interval(summary, signed=signed)})"
