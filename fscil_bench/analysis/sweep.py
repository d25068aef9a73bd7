"""A method at every point of a grid of settings, over the same draws; finished points are kept, not measured again."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fscil_bench.analysis import prototypes, shared_scores
from fscil_bench.analysis.prototypes import only_calibrates
from fscil_bench.analysis.shared_scores import SharedScores, Values
from fscil_bench.code import code_sha256, modules_sha256
from fscil_bench.errors import FscilError
from fscil_bench.evaluate import Arena
from fscil_bench.files import plain, read_json, sha256_json, write_json
from fscil_bench.markdown import counted
from fscil_bench.metrics import HEADLINE, SHORT, Summary, summarise
from fscil_bench.progress import note
from fscil_bench.protocols.draws import Draw
from fscil_bench.registry import Configured
from fscil_bench.runner import CHUNK_BYTES

SCHEMA = "fscil-bench/point/1"
TOGETHER = 16  # points measured at once, at most: what an interruption loses
NAMED = 3  # points that failed, at most


@dataclass(frozen=True)
class Point:
    """A method with some settings, and its headline numbers, [draws] each."""

    configured: Configured
    headline: dict[str, Values]
    kept: bool = False  # from an earlier sweep

    def summaries(self) -> dict[str, Summary]:
        return {key: summarise(values) for key, values in self.headline.items()}

    def mean(self, metric: str) -> float:
        return float(np.mean(self.headline[metric]))


def sweep_points(
    arena: Arena,
    wanted: Sequence[Configured],
    draws: Sequence[Draw],
    folder: Path,
    advance: Callable[[int], None] = lambda n: None,
) -> Iterator[Point]:
    """One method's points in turn, from `folder` if measured there with the same code, bank, protocol and draws.

    `advance` is told of each point, once it is on disk. Points that fail are left out, and named at the end.
    """
    failures: list[str] = []
    store = _Store.of(folder, arena, wanted[0], draws)
    shared = cache(lambda: SharedScores(arena.split, draws))  # made if a point needs it
    size = 8 * len(draws) * len(arena.protocol.new_classes) * arena.split.bank.features.shape[1]  # of the prototypes
    step = min(TOGETHER, max(1, CHUNK_BYTES // size))
    for first in range(0, len(wanted), step):
        group = wanted[first : first + step]
        found = [store.find(point) for point in group]
        missing = [point for point, kept in zip(group, found, strict=True) if kept is None]
        fresh = _measured(arena, missing, draws, shared)
        for point, kept in zip(group, found, strict=True):
            headline = next(fresh) if kept is None else kept
            if isinstance(headline, Exception):
                failures.append(f"{point.label}: {_told(headline)}")
            else:
                if kept is None:
                    store.add(point, headline)
                yield Point(point, headline, kept is not None)
            advance(1)
    if failures:
        named = "; ".join(failures[:NAMED]) + ("; ..." if len(failures) > NAMED else "")
        raise FscilError(
            f"{len(failures)} of {counted(len(wanted), 'point')} failed ({named}); the others are on disk: the sweep "
            "without these values takes them from there"
        )


def best_point(points: Sequence[Point], metric: str) -> Point:
    """The point with the highest mean; of equals the first."""
    return max(points, key=lambda point: point.mean(metric))


def _measured(
    arena: Arena, points: Sequence[Configured], draws: Sequence[Draw], shared: Callable[[], SharedScores]
) -> Iterator[dict[str, Values] | Exception]:
    """Headline numbers of points of one method, in turn, or why there are none."""
    if points and only_calibrates(points[0].method):
        yield from _calibrated_together(points, shared())
        return
    for point in points:
        try:
            headline = arena.run(point, draws).metrics.headline
        except Exception as error:
            yield error
        else:
            yield headline


def _calibrated_together(points: Sequence[Configured], shared: SharedScores) -> Iterator[dict[str, Values] | Exception]:
    calibrated: list[Tensor | Exception] = []
    for point in points:
        try:
            calibrated.append(shared.calibrated(point.method))
        except Exception as error:
            calibrated.append(error)
    whole = [found for found in calibrated if isinstance(found, Tensor)]
    headlines = shared.headlines(torch.stack(whole)) if whole else iter(())
    for found in calibrated:
        yield next(headlines) if isinstance(found, Tensor) else found


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, FscilError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class _Store:
    """Points on disk, one file each."""

    folder: Path
    facts: dict[str, Any]  # what all their numbers follow from, beside settings and draws
    draws: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, arena: Arena, method: Configured, draws: Sequence[Draw]) -> "_Store":
        facts = {
            "schema": SCHEMA,
            "method": method.name,
            "code_sha256": code_sha256(method.method),  # settings do not change it
            "sweep_sha256": modules_sha256(sys.modules[__name__], prototypes, shared_scores),
            "bank_sha256": arena.split.bank.sha256,
            "protocol": {"name": arena.protocol.name, "sha256": arena.protocol.sha256},
        }
        return cls(folder, facts, tuple(draw.name for draw in draws))

    def find(self, point: Configured) -> dict[str, Values] | None:
        """The headline numbers on disk, if they follow from the same inputs and are of these draws, or of more."""
        path = self._path(point)
        if not path.exists():
            return None
        wanted = {**self.facts, "settings": plain(point.settings)}
        try:
            found = read_json(path, "sweep point")
            if {key: found[key] for key in wanted} != wanted or not {*self.draws} <= {*found["draws"]}:
                return None
            places = [found["draws"].index(name) for name in self.draws]
            rows = {key: [np.nan if v is None else v for v in found["headline"][key]] for key in {**SHORT, **HEADLINE}}
            if any(len(row) != len(found["draws"]) for row in rows.values()):
                raise ValueError("draws and numbers differ in their count")
            return {key: np.array(row, dtype=float)[places] for key, row in rows.items()}
        except (FscilError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            note(f"Measured anew: {path.name} is no whole sweep point ({error})")
            return None

    def add(self, point: Configured, headline: dict[str, Values]) -> None:
        content = {**self.facts, "settings": plain(point.settings), "draws": self.draws, "headline": plain(headline)}
        write_json(self._path(point), content)

    def _path(self, point: Configured) -> Path:
        return self.folder / f"{sha256_json(plain(point.settings))[:16]}.json"
