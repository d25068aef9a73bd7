"""Sweeps: the shared path gives what the runner gives, and finished points are kept."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fscil_bench.analysis import shared_scores, sweep
from fscil_bench.analysis.prototypes import only_calibrates
from fscil_bench.analysis.sweep import SharedScores, best_point, sweep_points
from fscil_bench.errors import FscilError
from fscil_bench.evaluate import Arena
from fscil_bench.method import PrototypeMethod, setting
from fscil_bench.registry import Configured, configure


@pytest.fixture
def arena(toy_backbone):
    return Arena("cifar100", str(toy_backbone()))


@pytest.fixture
def draws(arena):
    return arena.draws(f"random:{seed}" for seed in range(4))


def settings_of(name):
    grids = {
        "protonet": [{}],
        "teen": [{"shift_weight": w, "tau": t} for w in ("0", "0.3", "1") for t in ("1", "32")]
        + [{"variant": "paper"}],
        "simteen": [{"k": "1", "shift_weight": "0.6"}, {"reduce": "sum"}],
        "simteen+teen": [{"teen.tau": "4", "k": "3"}],
    }
    return grids[name]


@pytest.mark.parametrize("name", ["protonet", "teen", "simteen", "simteen+teen"])
def test_shared_scores_give_the_runners_predictions(arena, draws, name, monkeypatch):
    points = [configure(name, "cifar100", given) for given in settings_of(name)]
    expected = [arena.run(point, draws) for point in points]
    shared = SharedScores(arena.split, draws)
    calibrated = torch.stack([shared.calibrated(point.method) for point in points])
    walked = np.stack([result.walk.predictions for result in expected])
    np.testing.assert_array_equal(shared.predictions(calibrated), walked)
    for result, headline in zip(expected, shared.headlines(calibrated), strict=True):
        for metric, values in headline.items():
            np.testing.assert_array_equal(values, result.metrics.headline[metric])
    monkeypatch.setattr(shared_scores, "CHUNK_BYTES", 1)
    np.testing.assert_array_equal(shared.predictions(calibrated), walked)


@dataclass(kw_only=True)
class Biased(PrototypeMethod):
    """Lowers all new-class scores: no mere calibration."""

    bias: float = setting(0.1, "by how much", low=0)

    def scores(self, queries):
        scores = super().scores(queries).clone()
        scores[..., len(self.base) :] -= self.bias
        return scores


@dataclass(kw_only=True)
class Broken(PrototypeMethod):
    """Divides by its setting."""

    by: float = setting(1.0, "divisor")

    def calibrate(self, new, base):
        return new / torch.tensor(self.by) * 0


def test_other_methods_go_through_the_runner(arena, draws, tmp_path):
    points = [Configured("biased", Biased(bias=b), {"bias": b}, {"bias": "user"}) for b in (0.0, 0.02)]
    assert not only_calibrates(points[0].method)
    got = list(sweep_points(arena, points, draws, tmp_path))
    plain = arena.run(configure("protonet", "cifar100"), draws).metrics.headline
    np.testing.assert_array_equal(got[0].headline["hmean"], plain["hmean"])
    assert got[1].mean("base_acc") > got[0].mean("base_acc")
    assert best_point(got, "base_acc") is got[1]


def test_nan_is_named_with_its_settings(arena, draws, tmp_path):
    points = [Configured("broken", Broken(by=by), {"by": by}, {"by": "user"}) for by in (1.0, 0.0)]
    with pytest.raises(FscilError, match=r"broken by=0.0: Broken.calibrate gave NaN"):
        list(sweep_points(arena, points, draws, tmp_path))
    assert len(list(tmp_path.glob("*.json"))) == 1  # the finished one is kept


@pytest.fixture
def measured(monkeypatch):
    """The methods that were measured, not read from disk, two at a time; after so many the sweep is interrupted."""
    seen = []
    real = SharedScores.calibrated

    def calibrated(self, method):
        if len(seen) == measured_limit[0]:
            raise KeyboardInterrupt
        seen.append(method)
        return real(self, method)

    measured_limit = [None]
    monkeypatch.setattr(SharedScores, "calibrated", calibrated)
    monkeypatch.setattr(sweep, "TOGETHER", 2)
    return seen, measured_limit


def test_an_interrupted_sweep_goes_on(arena, draws, tmp_path, measured):
    seen, limit = measured
    points = [configure("teen", "cifar100", {"tau": str(tau)}) for tau in (1, 2, 4, 8, 32)]
    limit[0] = 3
    with pytest.raises(KeyboardInterrupt):
        list(sweep_points(arena, points, draws, tmp_path))
    assert len(list(tmp_path.glob("*.json"))) == 2  # the third was of the pair that was cut off
    limit[0] = None
    told = []
    got = list(sweep_points(arena, points, draws, tmp_path, told.append))
    assert [method.tau for method in seen] == [1, 2, 4, 4, 8, 32]
    assert [point.kept for point in got] == [True, True, False, False, False]
    assert told == [1] * 5
    fresh = list(sweep_points(arena, points, draws, tmp_path / "fresh"))
    for one, other in zip(got, fresh, strict=True):
        assert one.headline.keys() == other.headline.keys()
        for metric, values in one.headline.items():
            np.testing.assert_array_equal(values, other.headline[metric])


@pytest.mark.parametrize("change", ["draws", "code", "bank", "damage", "text", "empty", "ragged", "words"])
def test_points_of_other_inputs_are_measured_anew(arena, draws, tmp_path, measured, monkeypatch, capsys, change):
    seen, _ = measured
    points = [configure("teen", "cifar100", {"tau": "4"})]
    list(sweep_points(arena, points, draws, tmp_path))
    if change == "draws":
        draws = arena.draws(f"random:{seed}" for seed in range(5))
    if change == "code":
        monkeypatch.setattr(sweep, "code_sha256", lambda *_: "other")
    (path,) = tmp_path.glob("*.json")
    if change == "bank":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"bank_sha256": "other"}))
    if change == "damage":
        path.write_bytes(path.read_bytes()[:50])
    if change == "text":
        path.write_text("[]")
    kept = json.loads(path.read_text()) if change in ("empty", "ragged", "words") else {}
    if change == "empty":
        path.write_text(json.dumps(kept | {"headline": {}}))
    if change == "ragged":
        path.write_text(json.dumps(kept | {"headline": kept["headline"] | {"hmean": [1.0]}}))
    if change == "words":
        path.write_text(json.dumps(kept | {"headline": kept["headline"] | {"hmean": ["x"] * len(draws)}}))
    (got,) = sweep_points(arena, points, draws, tmp_path)
    assert len(seen) == 2
    assert len(got.headline["hmean"]) == len(draws)
    assert ("is no whole sweep point" in capsys.readouterr().err) == (change not in ("draws", "code", "bank"))
    (again,) = sweep_points(arena, points, draws, tmp_path)
    assert len(seen) == 2
    np.testing.assert_array_equal(again.headline["hmean"], got.headline["hmean"])


def test_points_of_more_draws_serve_fewer(arena, draws, tmp_path, measured):
    seen, _ = measured
    points = [configure("teen", "cifar100", {"tau": str(tau)}) for tau in (4, 8)]
    whole = list(sweep_points(arena, points, draws, tmp_path))
    some = list(sweep_points(arena, points, draws[1:3], tmp_path))
    assert len(seen) == 2
    for one, other in zip(whole, some, strict=True):
        np.testing.assert_array_equal(one.headline["hmean"][1:3], other.headline["hmean"])
    assert all(point.kept for point in sweep_points(arena, points, draws, tmp_path))  # nothing was lost


def test_prototypes_that_would_fill_the_memory_come_in_smaller_groups(arena, draws, tmp_path, measured, monkeypatch):
    points = [configure("teen", "cifar100", {"tau": str(tau)}) for tau in (1, 2, 4)]
    together = list(sweep_points(arena, points, draws, tmp_path / "together"))
    monkeypatch.setattr(sweep, "CHUNK_BYTES", 1)
    _, limit = measured
    limit[0] = 5
    with pytest.raises(KeyboardInterrupt):
        list(sweep_points(arena, points, draws, tmp_path / "alone"))
    assert len(list((tmp_path / "alone").glob("*.json"))) == 2
    limit[0] = None
    alone = list(sweep_points(arena, points, draws, tmp_path / "alone"))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.headline["hmean"], other.headline["hmean"])
