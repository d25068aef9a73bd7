"""What a sweep says: its best points beside the settings that a method comes with, a CSV, a picture."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fscil_bench.analysis.plots import Band, heat_maps, lines
from fscil_bench.analysis.sweep import Point, best_point
from fscil_bench.files import plain
from fscil_bench.markdown import counted, csv_text, spread, summary_cells
from fscil_bench.metrics import HEADLINE, summarise
from fscil_bench.protocols import Protocol, load_protocol, protocol_names
from fscil_bench.settings import labelled

CHOICES = ("avg_acc", "hmean", "new_acc")  # what a setting may be chosen by


@dataclass(frozen=True)
class Report:
    """The points of a grid, and the points that the method comes with: its defaults and its variants."""

    method: str
    fixed: dict[str, str]  # settings that are the same at every point, and not the method's own
    protocol: Protocol
    backbone: str
    axes: dict[str, list[Any]]  # the values of each swept setting
    grid: list[Point]  # the last axis fastest
    given: dict[str, Point]  # defaults, and what each variant changes

    @property
    def label(self) -> str:
        return labelled(self.method, self.fixed)

    @property
    def selected_on(self) -> str:
        """The images that a setting chosen from this sweep has looked at."""
        return "validation" if self.protocol.is_validation else "test"

    @property
    def draws(self) -> int:
        return len(self.grid[0].headline["avg_acc"])

    def warning(self) -> str:
        """What a reader must know before choosing, or nothing."""
        if self.protocol.is_validation:
            return ""
        others = [load_protocol(name) for name in protocol_names()]
        fit = [p.name for p in others if p.is_validation and p.dataset == self.protocol.dataset]
        instead = f" Choose it with --dataset {fit[0]}, made of base classes alone." if fit else ""
        return (
            f"selected_on = {self.selected_on}: these are test images of {self.protocol.name}. A setting chosen here "
            f"has seen them, and its numbers here flatter it.{instead}"
        )

    def rows(self) -> list[list[str]]:
        """Cells of the best points and the given ones: name, settings, points as good, headline numbers."""
        found = []
        for metric in CHOICES:
            best = best_point(self.grid, metric)
            as_good = self.as_good(best, metric)
            found.append([f"best {HEADLINE[metric]}", *self._cells(best), "–" if as_good is None else str(as_good)])
        return found + [[name, *self._cells(point), ""] for name, point in self.given.items()]

    def as_good(self, best: Point, metric: str) -> int | None:
        """Points whose paired difference from the best has an interval that reaches 0, the best among them.

        Not known of a single draw, which gives no interval.
        """
        if self.draws < 2:
            return None
        gaps = [summarise(best.headline[metric] - point.headline[metric]) for point in self.grid if point is not best]
        return 1 + sum(not gap.low > 0 for gap in gaps)

    def _cells(self, point: Point) -> list[str]:
        settings = " ".join(f"{name}={point.configured.settings[name]}" for name in (*self.axes, *self.fixed))
        summaries = point.summaries()
        return [settings, *(spread(summaries[metric]) for metric in HEADLINE)]

    def csv(self) -> str:
        """One line a point: means and spreads over draws of all headline numbers."""
        points = [("grid", point) for point in self.grid] + list(self.given.items())
        return csv_text([self._line(name, point) for name, point in points])

    def _line(self, name: str, point: Point) -> dict[str, Any]:
        settings = point.configured.settings
        line = {
            "method": self.method,
            "dataset": self.protocol.name,
            "backbone": self.backbone,
            "selected_on": self.selected_on,
            "point": name,
            **{axis: settings[axis] for axis in self.axes},
            "settings": json.dumps(plain(settings), sort_keys=True),
            "draws": self.draws,
        }
        for metric, summary in point.summaries().items():
            line |= summary_cells(metric, summary)
        return line

    def as_data(self) -> dict[str, Any]:
        def data(point: Point) -> dict[str, Any]:
            summaries = {metric: asdict(summary) for metric, summary in point.summaries().items()}
            return {"settings": plain(point.configured.settings), "summary": plain(summaries)}

        best = {metric: best_point(self.grid, metric) for metric in CHOICES}
        return {
            "method": self.method,
            "dataset": self.protocol.name,
            "backbone": self.backbone,
            "selected_on": self.selected_on,
            "draws": self.draws,
            "axes": plain(self.axes),
            "best": {metric: {**data(p), "as_good": self.as_good(p, metric)} for metric, p in best.items()},
            "given": {name: data(point) for name, point in self.given.items()},
            "points": [data(point) for point in self.grid],
        }

    def draw(self, path: Path) -> bool:
        """A heat map of two axes or a line plot of one; False, and no picture, for more."""
        title = f"{self.label} on {self.protocol.name}, {self.backbone}, {counted(self.draws, 'draw')}"
        title += "" if self.protocol.is_validation else " (test images: not for choosing)"
        long = {axis: values for axis, values in self.axes.items() if len(values) > 1} or self.axes
        if len(long) > 2:
            return False
        texts = {axis: [f"{value}" for value in values] for axis, values in long.items()}
        cross = self._place_of_default(long)
        if len(long) == 2:
            shape = [len(values) for values in long.values()]
            maps = {HEADLINE[m]: np.array([p.mean(m) for p in self.grid]).reshape(shape) for m in CHOICES}
            title += "; o best" + (", x default" if cross else "")
            heat_maps(path, title, texts, maps, (cross[0], cross[1]) if cross else None)
            return True
        ((axis, values),) = long.items()
        numeric = all(isinstance(value, int | float) for value in values) and list(values) == sorted(values)
        panels = {HEADLINE[m]: self._band(m, values if numeric else range(len(values))) for m in (*CHOICES, "base_acc")}
        title += "; dashed: default" if cross else ""
        lines(path, title, axis, texts[axis], panels, cross[0] if cross else None, numeric=numeric)
        return True

    def _place_of_default(self, axes: dict[str, list[Any]]) -> list[int] | None:
        """Where on the grid the method's defaults lie, with what is fixed, if they do."""
        swept = [point.configured.settings for point in self.grid]
        defaults = [point.configured.settings for name, point in self.given.items() if name.startswith("default")]
        found = next((settings for settings in defaults if settings in swept), None)
        return None if found is None else [values.index(found[axis]) for axis, values in axes.items()]

    def _band(self, metric: str, places: Sequence[float]) -> Band:
        summaries = [point.summaries()[metric] for point in self.grid]
        x = np.array(places, dtype=float)
        mean, low, high = (np.array([getattr(s, part) for s in summaries]) for part in ("mean", "low", "high"))
        return Band(x, mean, low, high)
