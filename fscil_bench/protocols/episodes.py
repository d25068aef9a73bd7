"""Few-shot episodes: which classes of a protocol, and which of their images, each episode gets.

An episode is fixed by the seed and its number alone, whoever asks for it and however many others there are. Its random
numbers come from a counter-based generator (Philox), so that any part of a long series is sampled without the rest.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fscil_bench.errors import UsageError
from fscil_bench.protocols.draws import Rows, Split

WAYS, QUERIES, SHOTS, SEED = 5, 15, (1, 5), 0  # the literature's, and the leaderboard's
CLASSES, IMAGES = 0, 1  # streams of random numbers: the first of each kind
STREAMS = 2**32  # apart: far more than a class has images


class RefusedEpisodesError(UsageError):
    """The bank or its backbone cannot give the episodes asked for."""


@dataclass(frozen=True)
class Plan:
    """What episodes to play: `count` of them, each with `ways` classes and `queries` images a class to classify."""

    shots: tuple[int, ...] = SHOTS
    ways: int = WAYS
    queries: int = QUERIES
    count: int = 10_000
    seed: int = SEED

    def name(self, shots: int) -> str:
        return f"{self.ways}w{shots}s"


@dataclass(frozen=True)
class Episodes:
    """Consecutive episodes as rows of the bank; smaller shots are the first images of larger ones."""

    support: Rows  # [E, ways, shots]
    queries: Rows  # [E, ways, queries], the same for all shots


class Sampler:
    """Episodes from all images, training and test, of a protocol's new classes."""

    def __init__(self, split: Split, plan: Plan) -> None:
        self.plan = plan
        images = _images_of_new_classes(split)
        self._counts = np.array([len(rows) for rows in images])
        _require_enough(split, plan, self._counts)
        self._rows = np.zeros((len(images), self._counts.max()), dtype=np.int64)
        for place, rows in zip(self._rows, images, strict=True):
            place[: len(rows)] = rows

    def sample(self, start: int, count: int) -> Episodes:
        """The episodes `start` .. `start + count - 1`."""
        plan = self.plan
        classes = self._choose(start, np.full((count, 1), len(self._rows)), plan.ways, CLASSES)[:, 0]  # [E, ways]
        # Queries are taken before support, so that episodes with more shots ask the same questions.
        chosen = self._choose(start, self._counts[classes], plan.queries + max(plan.shots), IMAGES)
        rows = self._rows[classes[:, :, None], chosen]
        return Episodes(support=rows[:, :, plan.queries :], queries=rows[:, :, : plan.queries])

    def _choose(self, start: int, sizes: npt.NDArray[np.int64], wanted: int, kind: int) -> npt.NDArray[np.int64]:
        """For each size n in [E, m], `wanted` different numbers below n: the first steps of a Fisher-Yates shuffle."""
        count, width = sizes.shape
        order = np.empty((count * width, sizes.max()), dtype=np.int32)
        order[:] = np.arange(sizes.max())
        each = np.arange(count * width)
        for step in range(wanted):
            left = sizes.ravel() - step
            other = step + (_uniform(self.plan.seed, kind * STREAMS + step, start, count, width).ravel() * left).astype(
                int
            )
            order[each, step], order[each, other] = order[each, other], order[each, step]
        return order[:, :wanted].astype(np.int64).reshape(count, width, wanted)


def _uniform(seed: int, stream: int, start: int, count: int, width: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) for `width` places in each of the episodes from `start` on, [count, width]."""
    blocks = -(-width // 4)  # the generator gives four numbers for each step of its counter
    bits = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64), counter=start * blocks)
    raw = bits.random_raw(count * blocks * 4).reshape(count, blocks * 4)[:, :width]
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)


def _images_of_new_classes(split: Split) -> list[Rows]:
    """All rows of each new class in the order of the bank: by id, training images before test images."""
    used = np.sort(np.concatenate((split.train_rows, split.test_rows)))
    return [used[split.targets[used] == number] for number in split.protocol.new_classes]


def _require_enough(split: Split, plan: Plan, counts: npt.NDArray[np.int64]) -> None:
    if plan.ways > len(counts):
        raise RefusedEpisodesError(
            f"{plan.ways} ways need as many new classes: {split.protocol.name} has {len(counts)}"
        )
    needed = plan.queries + max(plan.shots)
    fewest = int(counts.argmin())
    if counts[fewest] < needed:
        name = split.protocol.classes[split.protocol.new_classes[fewest]]
        raise RefusedEpisodesError(
            f"class {name} has {counts[fewest]} images, {needed} are needed for {max(plan.shots)} shots and "
            f"{plan.queries} queries"
        )
