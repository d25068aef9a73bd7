"""The walk through the sessions: what is tested when, ties, batching, and what reaches a method."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fscil_bench.errors import FscilError
from fscil_bench.method import Method, PrototypeMethod
from fscil_bench.protocols import load_protocol
from fscil_bench.protocols.draws import Split
from fscil_bench.registry import configure
from fscil_bench.runner import final_scores, scores_after, walk


@pytest.fixture
def split(toy_bank):
    return Split(load_protocol("cifar100"), toy_bank())


@dataclass(kw_only=True)
class SessionWise(PrototypeMethod):
    """The same classifier, scored after every session."""

    classwise = False


@dataclass(kw_only=True)
class OneByOne(PrototypeMethod):
    """The same classifier, one draw at a time."""

    batched = False
    classwise = False


@dataclass(kw_only=True)
class Constant(Method):
    """Gives every class the same score, or what it is told."""

    value: float = 0.0
    extra: int = 0
    seen: int = field(init=False, default=0)

    def fit_base(self, base):
        self.seen = base.n_classes

    def add_session(self, support):
        self.seen = self.seen + support.features.shape[-3]

    def scores(self, queries):
        return torch.full((len(queries), self.seen + self.extra), self.value)


def test_each_session_is_tested_on_all_classes_seen(split):
    got = walk(configure("protonet", "cifar100").method, split, [split.random_draw(0)])
    targets = split.targets[split.test_rows]
    for session, count in enumerate(split.protocol.seen):
        predicted = got.predictions[0, session]
        assert ((predicted >= 0) == (targets < count)).all()
        assert predicted.max() < count


@pytest.mark.parametrize("other", [SessionWise, OneByOne])
def test_ways_of_walking_agree(split, other):
    draws = [split.random_draw(seed) for seed in range(3)]
    expected = walk(PrototypeMethod(), split, draws).predictions
    np.testing.assert_array_equal(walk(other(), split, draws).predictions, expected)


def test_chunks_of_draws_do_not_matter(split, monkeypatch):
    draws = [split.random_draw(seed) for seed in range(5)]
    expected = walk(PrototypeMethod(), split, draws).predictions
    monkeypatch.setattr("fscil_bench.runner.CHUNK_BYTES", 1)
    np.testing.assert_array_equal(walk(PrototypeMethod(), split, draws).predictions, expected)


def test_threads_do_not_matter(split):
    draws = [split.random_draw(seed) for seed in range(3)]
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(walk(PrototypeMethod(), split, draws).predictions)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*results)


def test_predictions_are_the_obvious_ones(split):
    """One session by an obvious loop: nearest class mean by cosine."""
    draw = split.random_draw(3)
    got = walk(PrototypeMethod(), split, [draw]).predictions[0, 2]
    features = split.bank.features.double().numpy()
    means = [features[split.base_rows[split.targets[split.base_rows] == c]].mean(axis=0) for c in range(60)]
    means += [features[rows].mean(axis=0) for rows in draw.rows[:10]]
    means = np.array([m / np.linalg.norm(m) for m in means])
    for place, row in enumerate(split.test_rows):
        if split.targets[row] < 70:
            assert got[place] == np.argmax(means @ features[row])


def test_ties_go_to_the_lowest_class(split):
    got = walk(Constant(), split, [split.random_draw(0)]).predictions
    assert set(np.unique(got)) == {-1, 0}


def test_ties_between_sessions_go_to_the_lowest_class(split):
    same = np.repeat(split.base_rows[:1], 5)
    draw = split.random_draw(0)
    draw.rows[:] = same  # every new class looks like one base image
    features = split.bank.features
    features[split.targets == 0] = features[same[0]].clone()
    got = walk(PrototypeMethod(), split, [draw]).predictions
    assert not (got > 59).any()


def test_wrong_shape_is_named(split):
    with pytest.raises(FscilError, match=r"Constant.scores gave shape \[\d+, 61\], expected \[..., \d+, 60\]"):
        walk(Constant(extra=1), split, [split.random_draw(0)])


def test_nan_is_refused(split):
    with pytest.raises(FscilError, match="NaN"):
        walk(Constant(value=float("nan")), split, [split.random_draw(0)])


def test_queries_come_shuffled(split):
    seen = []

    @dataclass(kw_only=True)
    class Spy(PrototypeMethod):
        def scores(self, queries):
            seen.append(queries)
            return super().scores(queries)

    walk(Spy(), split, [split.random_draw(0)])
    in_order = split.bank.features[torch.from_numpy(split.test_rows)].double()
    assert not torch.equal(seen[0], in_order)
    assert torch.equal(seen[0].sort(dim=0).values, in_order.sort(dim=0).values)


def test_queries_are_left_alone_by_default():
    queries = torch.rand(4, 3)
    assert Constant().encode(queries) is queries
    assert PrototypeMethod().encode(queries) is queries


@dataclass(kw_only=True)
class Doubled(PrototypeMethod):
    """Encodes queries as themselves twice over, and takes them back to score; counts both."""

    batched = False
    classwise = False
    calls: list = field(init=False, default_factory=list)

    def encode(self, queries):
        self.calls.append("encode")
        return torch.cat([queries, queries], dim=-1)

    def scores(self, queries):
        self.calls.append("scores")
        first, second = queries.chunk(2, dim=-1)
        assert torch.equal(first, second)
        return super().scores(first)


def test_queries_are_encoded_once_for_all_sessions_and_draws(split):
    draws, method = [split.random_draw(seed) for seed in range(3)], Doubled()
    got = walk(method, split, draws).predictions
    np.testing.assert_array_equal(got, walk(PrototypeMethod(), split, draws).predictions)
    assert method.calls == ["encode"] + 3 * (split.protocol.sessions + 1) * ["scores"]


def test_scores_looked_at_are_of_encoded_queries(split):
    draws, method = [split.random_draw(seed) for seed in range(2)], Doubled()
    for (got, _), (expected, _) in zip(
        final_scores(method, split, draws), final_scores(OneByOne(), split, draws), strict=True
    ):
        torch.testing.assert_close(got, expected)
    assert method.calls == ["encode", "scores", "scores"]
    places, method = np.array([3, 1, 40]), Doubled()
    got, expected = (scores_after(m, split, draws[0], 2, places) for m in (method, OneByOne()))
    np.testing.assert_allclose(got, expected)
    assert method.calls == ["encode", "scores"]


def test_queries_encoded_to_the_wrong_number_of_rows_are_named(split):
    @dataclass(kw_only=True)
    class Short(PrototypeMethod):
        def encode(self, queries):
            return queries[1:]

    with pytest.raises(FscilError, match=r"Short.encode gave shape \[\d+, \d+\], not a row for each of \[\d+\]"):
        walk(Short(), split, [split.random_draw(0)])
