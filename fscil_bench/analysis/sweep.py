"""A method at every point of a grid of settings, over the same draws; finished points are kept, not measured again."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fscil_bench.analysis import prototypes
from fscil_bench.analysis.prototypes import Means, only_calibrates
from fscil_bench.code import code_sha256, modules_sha256
from fscil_bench.errors import FscilError
from fscil_bench.evaluate import Arena
from fscil_bench.files import plain, read_json, sha256_json, write_json
from fscil_bench.method import Method, unit
from fscil_bench.metrics import Summary, measure, summarise
from fscil_bench.progress import note
from fscil_bench.protocols.draws import Draw, Split
from fscil_bench.registry import Configured
from fscil_bench.runner import ABSENT, CHUNK_BYTES, Predictions

SCHEMA = "fscil-bench/point/1"
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """A method with some settings, and its headline numbers, [draws] each."""

    configured: Configured
    headline: dict[str, Values]

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

    `advance` is told of each point, once it is on disk.
    """
    shared = cache(lambda: SharedScores(arena.split, draws))  # made if a point needs it
    code = {  # settings do not change it
        "code_sha256": code_sha256(wanted[0].method),
        "sweep_sha256": modules_sha256(sys.modules[__name__], prototypes),
    }

    def measured(configured: Configured) -> dict[str, Values]:
        try:
            if only_calibrates(configured.method):
                return shared().headline(configured.method)
            return arena.run(configured, draws).metrics.headline
        except FscilError as error:
            settings = " ".join(f"{key}={value}" for key, value in configured.changed.items())
            raise type(error)(f"{configured.name} {settings}: {error}") from error

    for configured in wanted:
        inputs = _inputs(arena, configured, draws, code)
        path = folder / f"{sha256_json(inputs['settings'])[:16]}.json"
        headline = _stored(path, inputs)
        if headline is None:
            headline = measured(configured)
            write_json(path, {**inputs, "headline": plain(headline)})
        yield Point(configured, headline)
        advance(1)


def best_point(points: Sequence[Point], metric: str) -> Point:
    """The point with the highest mean; of equals the first."""
    return max(points, key=lambda point: point.mean(metric))


class SharedScores:
    """What all settings of a method that only calibrates share: features, class means, scores of base classes."""

    def __init__(self, split: Split, draws: Sequence[Draw]) -> None:
        self.means = Means(split, draws)
        self.split = split
        self.queries = unit(split.bank.features[torch.from_numpy(split.test_rows)].double()).T.contiguous()  # [d, Q]
        self.targets = torch.from_numpy(split.targets[split.test_rows])
        self.best, winner = (unit(self.means.base) @ self.queries).max(dim=0)
        self.winner = winner.to(torch.int16)

    def headline(self, method: Method) -> dict[str, Values]:
        protocol = self.split.protocol
        return measure(self.predictions(method), self.targets.numpy(), protocol.seen, protocol.base).headline

    def predictions(self, method: Method) -> Predictions:
        """What `runner.walk` would note down, [draws, sessions, test images]: new classes challenge the best so far."""
        protocol = self.split.protocol
        new = unit(self.means.calibrated(method))  # [D, new, d]
        if new.isnan().any():
            raise FscilError(f"{type(method).__name__}.calibrate gave NaN: check its settings and the bank")
        predictions = np.empty((len(new), protocol.sessions + 1, len(self.targets)), dtype=np.int16)
        predictions[:, 0] = torch.where(self.targets < protocol.base, self.winner, ABSENT).numpy()
        step = max(1, CHUNK_BYTES // (8 * new.shape[1] * len(self.targets)))
        for first in range(0, len(new), step):
            part = slice(first, first + step)
            scores = (new[part].flatten(0, 1) @ self.queries).unflatten(0, (-1, new.shape[1]))
            best = self.best.expand(len(scores), -1).clone()
            winner = self.winner.expand(len(scores), -1).clone()
            for number in protocol.new_classes:
                challenge = scores[:, number - protocol.base]  # [D, Q]
                winner.masked_fill_(challenge > best, number)  # of equals the lowest class number wins
                torch.maximum(best, challenge, out=best)
                if number + 1 in protocol.seen:
                    session = protocol.seen.index(number + 1)
                    seen = torch.where(self.targets <= number, winner, ABSENT)
                    predictions[part, session] = seen.numpy()
        return predictions


def _inputs(arena: Arena, configured: Configured, draws: Sequence[Draw], code: dict[str, str]) -> dict[str, Any]:
    """What a point's numbers follow from."""
    return {
        "schema": SCHEMA,
        "method": configured.name,
        "settings": plain(configured.settings),
        **code,
        "bank_sha256": arena.split.bank.sha256,
        "protocol": {"name": arena.protocol.name, "sha256": arena.protocol.sha256},
        "draws": [draw.name for draw in draws],
    }


def _stored(path: Path, inputs: dict[str, Any]) -> dict[str, Values] | None:
    """The headline numbers on disk, if they follow from the same inputs."""
    if not path.exists():
        return None
    try:
        found = read_json(path, "sweep point")
        if {key: found[key] for key in inputs} != inputs:
            return None
        return {key: np.array([np.nan if v is None else v for v in row]) for key, row in found["headline"].items()}
    except (FscilError, KeyError, TypeError, AttributeError) as error:
        note(f"Measured anew: {path.name} is no whole sweep point ({error})")
        return None
