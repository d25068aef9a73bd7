"""Playing episodes: counts against slow loops, whatever the chunk, whatever the method can do."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fscil_bench import episodes
from fscil_bench.episodes import play
from fscil_bench.errors import FscilError
from fscil_bench.method import PrototypeMethod
from fscil_bench.protocols import load_protocol
from fscil_bench.protocols.draws import Split
from fscil_bench.protocols.episodes import Plan, Sampler
from fscil_bench.registry import configure

PLAN = Plan(count=60)


@pytest.fixture(scope="session")
def split(shared_toy_bank):
    return Split(load_protocol("cifar100"), shared_toy_bank(train=17, test=6))


def method(name, **values):
    return configure(name, "cifar100", {key: str(value) for key, value in values.items()}).method


def slow_counts(split, shots, shift=0.0, tau=16.0):
    """ProtoNet (no shift) and TEEN, one episode, one class, one query at a time."""
    features = split.bank.features.double().numpy()
    base = [features[split.base_rows[split.targets[split.base_rows] == b]].mean(axis=0) for b in range(60)]
    base = [mean / np.linalg.norm(mean) for mean in base]
    counts = []
    some = Sampler(split, PLAN).sample(0, PLAN.count)
    for support, queries in zip(some.support, some.queries, strict=True):
        prototypes = []
        for rows in support:
            mean = features[rows[:shots]].mean(axis=0)
            mean = mean / np.linalg.norm(mean)
            weights = np.exp([tau * (mean @ b) for b in base])
            mixture = sum(w * b for w, b in zip(weights / weights.sum(), base, strict=True))
            prototypes.append((1 - shift) * mean + shift * mixture / np.linalg.norm(mixture))
        right = 0
        for place, rows in enumerate(queries):
            for row in rows:
                query = features[row]
                right += place == np.argmax([query @ p / np.linalg.norm(p) for p in prototypes])
        counts.append(right)
    return counts


@pytest.mark.parametrize("shots", [1, 5])
def test_protonet_and_teen_against_a_slow_loop(split, shots):
    plain = play(method("protonet"), split, PLAN)
    calibrated = play(method("teen", shift_weight=0.4, tau=8), split, PLAN)
    assert plain.right[shots].tolist() == slow_counts(split, shots)
    assert calibrated.right[shots].tolist() == slow_counts(split, shots, shift=0.4, tau=8)
    assert plain.right[shots].tolist() != calibrated.right[shots].tolist()


def test_accuracy_and_its_interval(split):
    from scipy import stats

    played = play(method("protonet"), split, PLAN)
    values = 100 * played.right[5] / 75
    summary = played.summaries()[5]
    np.testing.assert_allclose(played.accuracy(5), values)
    interval = stats.t.interval(0.95, 59, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose((summary.mean, summary.low, summary.high), (values.mean(), *interval))


@pytest.mark.parametrize("size", [1, 10**5, 10**6])
def test_counts_do_not_depend_on_the_chunk(split, monkeypatch, size):
    wanted = play(method("teen"), split, PLAN).right
    monkeypatch.setattr(episodes, "CHUNK_BYTES", size)
    found = play(method("teen"), split, PLAN).right
    assert all((found[shots] == wanted[shots]).all() for shots in (1, 5))


def test_the_first_episodes_of_a_longer_run_are_the_same(split):
    long, short = (play(method("teen"), split, replace(PLAN, count=count)) for count in (60, 23))
    assert long.right[1][:23].tolist() == short.right[1].tolist()


def test_shots_played_together_or_alone_are_the_same(split):
    together = play(method("teen"), split, PLAN)
    alone = play(method("teen"), split, replace(PLAN, shots=(1,)))
    assert together.right[1].tolist() == alone.right[1].tolist()


def test_features_held_at_a_time_are_bounded(split):
    """Whatever the dimension: no more than one chunk, or one episode if that is larger."""
    for dim in (16, 64, 512, 1280, 10**6):
        wide = replace(split.bank, features=torch.zeros(1, dim, dtype=torch.float16))
        other = Split.__new__(Split)
        other.bank = wide
        held = episodes._chunk(method("protonet"), other, PLAN) * 100 * dim * 8
        assert held <= max(episodes.CHUNK_BYTES, 100 * dim * 8)


@dataclass(kw_only=True)
class OneByOne(PrototypeMethod):
    """ProtoNet that cannot batch."""

    batched = False

    def add_session(self, support):
        assert support.features.ndim == 3
        super().add_session(support)


@dataclass(kw_only=True)
class Sampling(PrototypeMethod):
    """Prototypes with noise, drawn for blocks of episodes."""

    batched = False
    sampled = True
    episode_block = 8

    def add_session(self, support):
        assert support.features.shape[:2] == (8, 5)
        noise = torch.randn(support.features.shape, generator=self.generator, dtype=torch.float64)
        super().add_session(type(support)(support.features + noise))


def test_a_method_that_cannot_batch_plays_one_episode_at_a_time(split):
    wanted = play(method("protonet"), split, PLAN)
    assert play(OneByOne(), split, PLAN).right[5].tolist() == wanted.right[5].tolist()


@pytest.mark.parametrize("kind", [PrototypeMethod, OneByOne])
def test_queries_are_encoded_once_for_all_shots(split, kind):
    calls = []

    @dataclass(kw_only=True)
    class Negated(kind):
        def encode(self, queries):
            calls.append(queries.shape)
            return -queries

        def scores(self, queries):
            return super().scores(-queries)

    wanted = play(method("protonet"), split, PLAN)
    got = play(Negated(), split, PLAN)
    assert all((got.right[shots] == wanted.right[shots]).all() for shots in (1, 5))
    dim = split.bank.features.shape[1]
    assert calls == ([(60, 75, dim)] if kind is PrototypeMethod else 60 * [(75, dim)])


def test_random_numbers_belong_to_the_block(split, monkeypatch):
    long = play(Sampling(), split, PLAN)
    short = play(Sampling(), split, replace(PLAN, count=21))
    assert long.right[1][:21].tolist() == short.right[1].tolist()
    monkeypatch.setattr(episodes, "CHUNK_BYTES", 1)
    assert play(Sampling(), split, PLAN).right[1].tolist() == long.right[1].tolist()
    assert play(Sampling(), split, replace(PLAN, seed=1)).right[1].tolist() != long.right[1].tolist()


def test_many_queries_are_counted(toy_bank):
    split = Split(load_protocol("cifar100"), toy_bank(train=60, test=10))
    played = play(method("protonet"), split, Plan(shots=(1,), queries=65, count=5))
    assert played.right[1].max() > 255


@dataclass(kw_only=True)
class WrongShape(PrototypeMethod):
    """Scores base classes too."""

    def fit_base(self, base):
        super().fit_base(replace(base, donors_only=False))


@dataclass(kw_only=True)
class NaN(PrototypeMethod):
    """Scores nothing."""

    def scores(self, queries):
        return super().scores(queries) * torch.nan


@pytest.mark.parametrize(
    ("broken", "message"), [(WrongShape, r"gave shape \[60, 75, 65\], expected \[60, 75, 5\]"), (NaN, "gave NaN")]
)
def test_wrong_scores_are_named(split, broken, message):
    with pytest.raises(FscilError, match=message):
        play(broken(), split, PLAN)


def test_queries_come_in_no_order_of_classes(split):
    seen = []

    @dataclass(kw_only=True)
    class Looks(PrototypeMethod):
        def scores(self, queries):
            seen.append(super().scores(queries).argmax(dim=-1))
            return super().scores(queries)

    play(Looks(), split, Plan(shots=(5,), count=20))
    changes = (seen[0][:, 1:] != seen[0][:, :-1]).double().mean()
    assert changes > 0.5  # in class order neighbours would mostly be of one class
