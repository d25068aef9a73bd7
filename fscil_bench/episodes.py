"""Plays few-shot episodes with a method and counts its right answers: many episodes at once where the method can.

The verbs are those of the sessions: `fit_base` with the base classes as donors, `encode` with [E, queries, d],
`add_session` with [E, ways, shots, d], and `scores`. Features are float64, as in the sessions: closed forms then give
the same counts whatever the number of threads or the size of a chunk.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fscil_bench.errors import FscilError
from fscil_bench.method import Base, Method, Support
from fscil_bench.metrics import Summary, Values, summarise
from fscil_bench.protocols.draws import Rows, Split
from fscil_bench.protocols.episodes import Plan, Sampler
from fscil_bench.runner import encoded, named_generator

Counts = npt.NDArray[np.uint16]
CHUNK_BYTES = 16 * 2**20  # of features held at a time: little memory, and they stay in the processor's cache


@dataclass(frozen=True)
class Played:
    """How many queries of every episode a method got right."""

    plan: Plan
    right: dict[int, Counts]  # by shots: [episodes], each of ways * queries
    seconds: dict[str, float]  # by phase

    def accuracy(self, shots: int) -> Values:
        """Percent of right answers in each episode."""
        return 100 * self.right[shots].astype(np.float64) / (self.plan.ways * self.plan.queries)

    def summaries(self) -> dict[int, Summary]:
        return {shots: summarise(self.accuracy(shots)) for shots in self.plan.shots}


def play(method: Method, split: Split, plan: Plan, advance: Callable[[int], None] = lambda n: None) -> Played:
    """Every episode of `plan`, with each number of shots; `advance` is told of finished episodes."""
    started = time.perf_counter()
    sampler = Sampler(split, plan)
    _fit_donors(method, split)
    fitted = time.perf_counter()
    questions = plan.ways * plan.queries
    shuffle = np.random.default_rng(0).permutation(questions)  # queries come in no order that tells of their classes
    targets = torch.from_numpy(shuffle // plan.queries)
    right = {shots: np.empty(plan.count, dtype=np.uint16) for shots in plan.shots}
    size = _chunk(method, split, plan)
    for start in range(0, plan.count, size):
        # A method that takes episodes in blocks always gets whole ones: its random numbers belong to the block.
        episodes = sampler.sample(start, min(size, plan.count - start) if method.batched else size)
        kept = min(size, plan.count - start)
        queries = _take(split, episodes.queries.reshape(-1, questions)[:, shuffle])
        support = _take(split, episodes.support)
        if size == 1 and not method.batched:  # such a method need not know of leading dimensions
            support, queries = support[0], queries[0]
        queries = encoded(method, queries)
        for shots in plan.shots:
            player = method.fork()
            player.generator = named_generator("episodes", *map(str, (plan.seed, plan.ways, shots, start)))
            answers = _answers(player, support[..., :shots, :], queries)
            counts = (answers == targets).sum(dim=-1).reshape(-1)
            right[shots][start : start + kept] = counts[:kept].numpy()
        advance(kept)
    return Played(plan, right, {"fit_base": fitted - started, "episodes": time.perf_counter() - fitted})


def _answers(method: Method, support: Tensor, queries: Tensor) -> Tensor:
    """Predicted places among the episode's classes, [*, questions]."""
    method.add_session(Support(support))
    scores = method.scores(queries).double()
    wanted = (*queries.shape[:-1], support.shape[-3])
    if scores.shape != wanted:
        raise FscilError(f"{type(method).__name__}.scores gave shape {[*scores.shape]}, expected {[*wanted]}")
    if scores.isnan().any():
        raise FscilError(f"{type(method).__name__}.scores gave NaN: check its settings and the bank")
    return scores.argmax(dim=-1)  # of equals the first class of the episode wins


def _fit_donors(method: Method, split: Split) -> None:
    labels = torch.from_numpy(split.targets[split.base_rows])
    method.generator = named_generator("base")
    base = Base(_take(split, split.base_rows), labels, split.protocol.base, split.bank.head, donors_only=True)
    method.fit_base(base)


def _chunk(method: Method, split: Split, plan: Plan) -> int:
    """How many episodes are played at once."""
    if not method.batched:
        return method.episode_block
    images = plan.ways * (plan.queries + max(plan.shots))
    return max(1, CHUNK_BYTES // (8 * images * split.bank.features.shape[1]))


def _take(split: Split, rows: Rows) -> Tensor:
    return split.bank.features[torch.from_numpy(rows)].double()
