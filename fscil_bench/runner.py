"""Walks a method through the sessions, hands it only what FSCIL allows, and takes down its predictions."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fscil_bench.errors import FscilError
from fscil_bench.files import sha256_bytes
from fscil_bench.method import Base, Method, Support
from fscil_bench.protocols.draws import Draw, Split

Predictions = npt.NDArray[np.int16]
ABSENT = -1  # in predictions: the image's class has not been seen yet
CHUNK_BYTES = 256 * 2**20  # of scores held at a time


@dataclass(frozen=True)
class Walk:
    """A method's predictions in every session, for every draw."""

    draws: tuple[str, ...]
    predictions: Predictions  # [draws, sessions, test images]: class numbers, test images in the order of the split
    seconds: dict[str, float]  # by phase
    trained_parameters: int = 0


def walk(
    method: Method,
    split: Split,
    draws: Sequence[Draw],
    advance: Callable[[int], None] = lambda n: None,
    last: int | None = None,
) -> Walk:
    """Base session, then every session (or those up to `last`) of every draw; `advance` is told of finished draws."""
    protocol = split.protocol
    started = time.perf_counter()
    shuffle, queries, targets = _shuffled(split)
    _fit_base(method, split)
    queries = encoded(method, queries)
    fitted = time.perf_counter()
    last = protocol.sessions if last is None else min(last, protocol.sessions)
    predictions = np.empty((len(draws), last + 1, len(queries)), dtype=np.int16)
    trained = 0
    for part in _batches(method, len(draws), len(queries), len(protocol.classes)):
        chosen = draws[part]
        walker, sessions = _fork(method, split, chosen)
        steps = _classwise_steps if method.classwise else _session_steps
        steps_made = steps(walker, sessions[:last], queries, targets, protocol.seen[: last + 1])
        for session, predicted in enumerate(steps_made):
            predictions[part, session] = predicted.numpy()
        trained = walker.trained_parameters()
        advance(len(chosen))
    ordered = np.empty_like(predictions)
    ordered[:, :, shuffle] = predictions
    seconds = {"fit_base": fitted - started, "sessions": time.perf_counter() - fitted}
    return Walk(tuple(draw.name for draw in draws), ordered, seconds, trained)


def scores_after(
    method: Method, split: Split, draw: Draw, session: int, places: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """The scores of some test images after a session of one draw: to look at a prediction closely."""
    _fit_base(method, split)
    queries = encoded(method, _take(split, split.test_rows[places]))
    walker, sessions = _fork(method, split, [draw])
    for support in sessions[:session]:
        walker.add_session(support)
    scores = _checked(walker, queries, split.protocol.seen[session])
    return scores.reshape(len(places), -1).numpy()


def final_scores(
    method: Method, split: Split, draws: Sequence[Draw], advance: Callable[[int], None] = lambda n: None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores after the last session, [*, Q, C] for part after part of the draws, with the queries' classes, [Q]."""
    _, queries, targets = _shuffled(split)
    _fit_base(method, split)
    queries = encoded(method, queries)
    for part in _batches(method, len(draws), len(queries), len(split.protocol.classes)):
        walker, sessions = _fork(method, split, draws[part])
        for support in sessions:
            walker.add_session(support)
        scores = _checked(walker, queries, len(split.protocol.classes))
        yield scores.expand(len(draws[part]), *scores.shape[-2:]), targets
        advance(len(draws[part]))


def _shuffled(split: Split) -> tuple[npt.NDArray[np.int64], Tensor, Tensor]:
    """Queries in no order that tells of their classes: that order, their features and their classes."""
    shuffle = np.random.default_rng(0).permutation(len(split.test_rows))
    rows = split.test_rows[shuffle]
    return shuffle, _take(split, rows), torch.from_numpy(split.targets[rows])


def _take(split: Split, rows: npt.NDArray[np.int64]) -> Tensor:
    return split.bank.features[torch.from_numpy(rows)].double()


def _fit_base(method: Method, split: Split) -> None:
    labels = torch.from_numpy(split.targets[split.base_rows])
    method.generator = named_generator("base")
    method.fit_base(Base(_take(split, split.base_rows), labels, split.protocol.base, split.bank.head))


def _fork(method: Method, split: Split, draws: Sequence[Draw]) -> tuple[Method, list[Support]]:
    """A copy of the fitted method for these draws, and what each session brings it."""
    walker = method.fork()
    walker.generator = named_generator(*(draw.name for draw in draws))
    rows = np.stack([draw.rows for draw in draws])
    support = _take(split, rows if method.batched else rows[0])  # [*, new classes, shot, d]
    sessions = support.split(split.protocol.way, dim=-3)
    if "all_data" not in method.privileges:
        return walker, [Support(shots) for shots in sessions]
    whole = [_take(split, split.train_of[number]) for number in split.protocol.new_classes]
    way = split.protocol.way
    return walker, [Support(shots, tuple(whole[i * way : (i + 1) * way])) for i, shots in enumerate(sessions)]


def _batches(method: Method, draws: int, queries: int, classes: int) -> Iterator[slice]:
    """Parts of the draws whose scores fit into memory; one draw at a time for methods that cannot batch."""
    size = max(1, CHUNK_BYTES // (8 * queries * classes)) if method.batched else 1
    return (slice(start, min(start + size, draws)) for start in range(0, draws, size))


def _classwise_steps(
    method: Method, sessions: Sequence[Support], queries: Tensor, targets: Tensor, seen: Sequence[int]
) -> Iterator[Tensor]:
    """Score all classes once; a session's prediction is the best of the classes seen by then."""
    for support in sessions:
        method.add_session(support)
    scores = _checked(method, queries, seen[-1])
    best, winner = scores[..., : seen[0]].max(dim=-1)
    yield torch.where(targets < seen[0], winner, ABSENT)
    for first, last in pairwise(seen):
        value, place = scores[..., first:last].max(dim=-1)
        winner = torch.where(value > best, place + first, winner)  # of equals the lowest class number wins
        best = torch.maximum(best, value)
        yield torch.where(targets < last, winner, ABSENT)


def _session_steps(
    method: Method, sessions: Sequence[Support], queries: Tensor, targets: Tensor, seen: Sequence[int]
) -> Iterator[Tensor]:
    """Score after every session, over the test images of the classes seen by then."""
    for session, count in enumerate(seen):
        if session:
            method.add_session(sessions[session - 1])
        present = targets < count
        winner = _checked(method, queries[present], count).argmax(dim=-1)
        predicted = torch.full((*winner.shape[:-1], len(queries)), ABSENT)
        predicted[..., present] = winner
        yield predicted


def _checked(method: Method, queries: Tensor, classes: int) -> Tensor:
    scores = method.scores(queries).double()
    if scores.shape[-2:] != (len(queries), classes):
        raise FscilError(
            f"{type(method).__name__}.scores gave shape {[*scores.shape]}, expected [..., {len(queries)}, {classes}]"
        )
    if scores.isnan().any():
        raise FscilError(f"{type(method).__name__}.scores gave NaN: check its settings and the bank")
    return scores


def encoded(method: Method, queries: Tensor) -> Tensor:
    """What the method's `encode` makes of queries: called once, whatever the sessions and draws."""
    rows = method.encode(queries)
    if rows.shape[:-1] != queries.shape[:-1]:
        raise FscilError(
            f"{type(method).__name__}.encode gave shape {[*rows.shape]}, not a row for each of {[*queries.shape[:-1]]}"
        )
    return rows


def named_generator(*names: str) -> torch.Generator:
    """Random numbers that depend on what is named alone: a draw, a block of episodes."""
    seed = int(sha256_bytes("\n".join(names).encode())[:15], 16)
    return torch.Generator().manual_seed(seed)
