"""Offset curves against a slow search over every offset that could matter."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fscil_bench.analysis.offset import Curves, reach, share_of, trace
from fscil_bench.method import Method
from fscil_bench.metrics import measure
from fscil_bench.protocols import load_protocol
from fscil_bench.protocols.draws import Split
from fscil_bench.registry import configure
from fscil_bench.runner import walk


@pytest.fixture
def split(toy_bank):
    return Split(load_protocol("cifar100"), toy_bank())


@dataclass(kw_only=True)
class Coarse(Method):
    """Rounded scores, full of ties; one draw at a time."""

    batched = False
    weights: object = field(init=False)

    def fit_base(self, base):
        self.weights = base.means()

    def add_session(self, support):
        self.weights = torch.cat((self.weights, support.features.mean(dim=-2)))

    def scores(self, queries):
        return ((queries @ self.weights.T) * 2).round()


def every_offset(scores, targets, base):
    """BAcc and NAcc at every offset where something changes, and between: slow and obvious."""
    found = []
    gaps = {float(s[:base].max() - s[base:].max()) for s in scores}
    edges = sorted({g + d for g in gaps for d in (-1e-6, 0.0, 1e-6)} | {-1e9, 1e9})
    for offset in edges:
        moved = scores.copy()
        moved[:, base:] += offset
        right = np.array([int(np.argmax(s)) == t for s, t in zip(moved, targets, strict=True)])
        found.append((100 * right[targets < base].mean(), 100 * right[targets >= base].mean()))
    return np.array(found)


@pytest.mark.parametrize("method", [Coarse(), configure("teen", "cifar100").method], ids=["ties", "teen"])
def test_curves_are_those_of_a_search_over_all_offsets(split, method):
    draws = [split.random_draw(seed) for seed in range(2)]
    curves = trace(method, split, draws, lambda n: None)
    base, targets = split.protocol.base, split.targets[split.test_rows]
    for i, draw in enumerate(draws):
        method.fit_base(_base(split))
        walker = method.fork()
        features = split.bank.features[torch.from_numpy(draw.rows)].double()
        for way in features.split(5):
            walker.add_session(_support(way))
        scores = walker.scores(split.bank.features[torch.from_numpy(split.test_rows)].double()).numpy()
        points = every_offset(scores, targets, base)
        assert curves.highest_base_acc()[i] == pytest.approx(points[:, 0].max())
        at = np.unique(np.concatenate((points[:, 0], np.linspace(0, points[:, 0].max(), 7))))
        expected = [points[points[:, 0] >= a - 1e-9, 1].max() for a in at]
        got = curves.new_acc_at(np.tile(at, (2, 1)))[i]
        np.testing.assert_allclose(got, expected)
        steps = np.arange(1, round(points[:, 0].max() * 180 / 100) + 1) * 100 / 180  # 60 classes x 3 test images
        area = sum(points[points[:, 0] >= a - 1e-9, 1].max() for a in steps) / 180
        assert curves.areas()[i] == pytest.approx(area)


def _base(split):
    from fscil_bench.method import Base

    rows = split.base_rows
    return Base(split.bank.features[torch.from_numpy(rows)].double(), torch.from_numpy(split.targets[rows]), 60)


def _support(features):
    from fscil_bench.method import Support

    return Support(features)


@pytest.mark.parametrize("method", [Coarse(), configure("simteen", "cifar100").method], ids=["ties", "simteen"])
def test_without_an_offset_it_is_what_the_runner_measures(split, method, monkeypatch):
    draws = [split.random_draw(seed) for seed in range(3)]
    targets = split.targets[split.test_rows]
    headline = measure(walk(method, split, draws).predictions, targets, split.protocol.seen, 60).headline
    monkeypatch.setattr("fscil_bench.runner.CHUNK_BYTES", 1)
    told = []
    base_acc, new_acc = trace(method, split, draws, told.append).operating_point()
    np.testing.assert_allclose(base_acc, headline["base_acc"])
    np.testing.assert_allclose(new_acc, headline["new_acc"])
    assert sum(told) == 3


def by_hand(base, new):
    rows = torch.tensor(base, dtype=torch.float64), torch.tensor(new, dtype=torch.float64)
    names = tuple(f"random:{i}" for i in range(len(base)))
    return Curves(names, rows[0].sort(dim=1, descending=True).values, rows[1].sort(dim=1).values)


INF = float("inf")


def test_a_curve_by_hand():
    # four base images with gaps 3, 1, -1 and one wrong; four new images with gaps 2, 0, -2 and one wrong
    curves = by_hand([[3, 1, -1, -INF]], [[2, 0, -2, INF]])
    assert curves.operating_point() == (50.0, 25.0)
    at = np.array([[0, 10, 25, 50, 75, 80]])
    np.testing.assert_array_equal(curves.new_acc_at(at)[0], [75, 75, 75, 50, 25, np.nan])
    assert curves.areas()[0] == 100 * (3 + 2 + 1) / 16
    assert curves.highest_base_acc()[0] == 75


def test_curves_do_not_depend_on_the_unit_of_scores(split):
    draws = [split.random_draw(0)]
    one = trace(Coarse(), split, draws, lambda n: None)
    other = Curves(one.draws, one.base * 7, one.new * 7)
    at = np.linspace(0, one.highest_base_acc()[0], 20)[None]
    np.testing.assert_array_equal(one.new_acc_at(at), other.new_acc_at(at))
    np.testing.assert_array_equal(one.areas(), other.areas())


def test_an_offset_on_the_baseline_is_reached_fully_by_an_offset():
    baseline = by_hand([[3, 1, 1, -2], [4, 2, 2, -1]], [[2, 0, -2, 0.5], [3, 1, -1, 1.5]])
    moved = Curves(baseline.draws, baseline.base - 0.75, baseline.new - 0.75)
    got = reach(moved, baseline)
    assert got.gain.mean == 25  # from one of four to three in the first draw, from one to one in the second
    assert got.beyond.mean <= 0  # never more than the best offset
    assert got.more_area.mean == 0


def test_reach_takes_the_draws_that_both_have():
    baseline = by_hand([[3, 1]] * 3, [[2, -1]] * 3)
    assert reach(baseline.of(["random:2", "random:0"]), baseline).gain.n == 2
    with pytest.raises(ValueError, match="same draws"):
        reach(Curves(("random:9",), baseline.base[:1], baseline.new[:1]), baseline)


def test_a_share_is_a_ratio_of_means_with_an_interval():
    rng = np.random.default_rng(0)
    whole = 2 + rng.normal(size=200) * 0.3
    part = 0.4 * whole + rng.normal(size=200) * 0.1
    got = share_of(part, whole)
    assert got.mean == pytest.approx(100 * part.sum() / whole.sum())
    picks = rng.integers(0, 200, size=(4000, 200))
    low, high = np.percentile(100 * part[picks].sum(1) / whole[picks].sum(1), [2.5, 97.5])
    assert got.low == pytest.approx(low, abs=0.15)
    assert got.high == pytest.approx(high, abs=0.15)


@pytest.mark.parametrize("whole", [[1.0], [1.0, -1.0, 0.5], [-1.0, -1.1, -0.9]])
def test_no_share_of_what_is_not_clearly_a_gain(whole):
    assert np.isnan(share_of(np.ones(len(whole)), np.array(whole)).mean)
