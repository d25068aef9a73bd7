"""Prototypes against their oracles: slow loops, hand cases, and which methods qualify."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fscil_bench.analysis.prototypes import Means, Nearness, nearness, only_calibrates
from fscil_bench.errors import UsageError
from fscil_bench.method import PrototypeMethod, Support
from fscil_bench.protocols import load_protocol
from fscil_bench.protocols.draws import Split
from fscil_bench.registry import configure


@pytest.fixture
def split(toy_bank):
    return Split(load_protocol("cifar100"), toy_bank())


def cosine(a, b):
    return float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b))


@pytest.mark.parametrize("name", ["protonet", "teen", "simteen", "simteen+teen"])
def test_nearness_is_that_of_slow_loops(split, name):
    draws = [split.random_draw(seed) for seed in range(3)]
    features, targets = split.bank.features.double().numpy(), split.targets
    train = ~split.bank.is_test
    base = np.array([features[(targets == c) & train].mean(axis=0) for c in range(60)])
    centre = np.mean([b / np.linalg.norm(b) for b in base], axis=0)
    method = configure(name, "cifar100").method
    means = Means(split, draws)
    got = nearness(means, means.calibrated(method))
    for d, draw in enumerate(draws):
        for i, number in enumerate(split.protocol.new_classes):
            oracle = features[(targets == number) & train].mean(axis=0)
            before = features[draw.rows[i]].mean(axis=0)
            after = torch.from_numpy(before)[None]
            for part in (method, *method.further):
                after = part.calibrate(after, torch.from_numpy(base))
            after = after[0].numpy()
            assert got["cosine"].before[d, i] == pytest.approx(cosine(before, oracle))
            assert got["cosine"].after[d, i] == pytest.approx(cosine(after, oracle))
            o, b, a = (v / np.linalg.norm(v) - centre for v in (oracle, before, after))
            assert got["centred"].before[d, i] == pytest.approx(cosine(b, o))
            assert got["centred"].after[d, i] == pytest.approx(cosine(a, o))


def test_calibrated_prototypes_are_those_of_the_harness(split):
    draws = [split.random_draw(seed) for seed in range(2)]
    means = Means(split, draws)
    method = configure("teen", "cifar100", {"variant": "paper"}).method
    got = means.calibrated(method)
    from fscil_bench.runner import _fit_base, _fork

    _fit_base(method, split)
    walker, sessions = _fork(method, split, draws)
    for support in sessions:
        walker.add_session(support)
    torch.testing.assert_close(got, torch.cat(walker.new, dim=-2), rtol=1e-14, atol=0)


def test_summaries_by_hand():
    near = Nearness(np.array([[0.5, 0.7], [0.4, 0.8]]), np.array([[0.6, 0.6], [0.5, 0.9]]))
    got = near.summaries()
    assert near.closer.tolist() == [50.0, 100.0]
    assert got["before"].mean == pytest.approx(0.6)
    assert got["gain"].mean == pytest.approx(0.05)
    assert (got["gain"].n, got["closer"].mean) == (2, 75.0)


def test_the_interval_of_a_share_ends_at_0_and_100():
    none, one, all_ = [0.4] * 4, [0.6, 0.4, 0.4, 0.4], [0.6] * 4
    before = np.full((2, 4), 0.5)
    few, most = (Nearness(before, np.array(after)).summaries()["closer"] for after in ([none, one], [one, all_]))
    assert (few.mean, few.low) == (12.5, 0)
    assert (most.mean, most.high) == (62.5, 100)
    assert np.isnan(Nearness(before[:1], np.array([one])).summaries()["closer"].high)  # one draw: no interval


@dataclass(kw_only=True)
class Own(PrototypeMethod):
    """Makes prototypes its own way."""

    def add_session(self, support: Support) -> None:
        self.new = (*self.new, support.features.median(dim=-2).values)


@dataclass(kw_only=True)
class Privileged(PrototypeMethod):
    """Calibrates, but with more than FSCIL allows."""

    privileges = ("all_data",)


@pytest.mark.parametrize("method", [Own(), Privileged()])
def test_methods_that_do_more_are_refused(split, method):
    assert not only_calibrates(method)
    with pytest.raises(UsageError, match="does more, or less, than calibrate"):
        Means(split, [split.random_draw(0)]).calibrated(method)


@pytest.mark.parametrize("name", ["protonet", "teen", "simteen", "simteen+teen"])
def test_methods_that_only_calibrate(name):
    assert only_calibrates(configure(name, "cifar100").method)
