"""Metrics against cases counted by hand, and what must hold for any predictions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fscil_bench.metrics import harmonic_mean, measure, measure_as_papers, summarise

TARGETS = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3])  # base classes 0 and 1; then sessions with class 2, class 3
SEEN, BASE = (2, 3, 4), 2
PREDICTIONS = np.array(
    [[[0, 0, 0, 1, 1, 0, -1, -1, -1], [0, 0, 2, 1, 1, 2, 2, 0, -1], [0, 3, 2, 1, 1, 2, 2, 3, 1]]], dtype=np.int16
)


def test_by_hand():
    got = {k: v[0] for k, v in measure(PREDICTIONS, TARGETS, SEEN, BASE).by_session.items()}
    np.testing.assert_allclose(got["avg_acc"], [100 * 4 / 6, 100 * 4 / 8, 100 * 3 / 9])
    np.testing.assert_allclose(got["base_acc"], [100 * 4 / 6, 50, 100 * 2 / 6])
    np.testing.assert_allclose(got["new_acc"], [np.nan, 50, 100 / 3])
    np.testing.assert_allclose(got["hmean"], [np.nan, 50, 100 / 3])
    np.testing.assert_allclose(got["fnr"], [np.nan, 100 * 2 / 6, 50])
    np.testing.assert_allclose(got["fpr"], [np.nan, 50, 100 / 3])


def test_headline_by_hand():
    headline = measure(PREDICTIONS, TARGETS, SEEN, BASE).headline
    assert headline["pd"][0] == pytest.approx(100 * (4 / 6 - 3 / 9))
    assert headline["mean_acc"][0] == pytest.approx(100 * (4 / 6 + 4 / 8 + 3 / 9) / 3)
    assert headline["avg_acc"][0] == pytest.approx(100 * 3 / 9)


def test_paper_metrics_average_classes_and_batches():
    got = {k: v[0] for k, v in measure_as_papers(PREDICTIONS, TARGETS, SEEN, BASE, 99.0).by_session.items()}
    assert got["avg_acc"][0] == 99.0  # the better of two heads
    np.testing.assert_allclose(got["base_acc"][1:], [(50 + 50) / 2, (25 + 50) / 2])
    np.testing.assert_allclose(got["new_acc"][1:], [50, (50 + 0) / 2])


def test_paper_accuracy_overweights_a_short_last_batch():
    targets = np.zeros(101, dtype=np.int64)
    predictions = np.zeros((1, 1, 101), dtype=np.int16)
    predictions[0, 0, 100] = 1  # wrong, alone in the second batch of 100
    assert measure_as_papers(predictions, targets, (1,), 1).by_session["avg_acc"][0, 0] == pytest.approx(50)
    assert measure(predictions, targets, (1,), 1).by_session["avg_acc"][0, 0] == pytest.approx(100 * 100 / 101)


def test_paper_metrics_want_sorted_targets():
    with pytest.raises(ValueError, match="sorted"):
        measure_as_papers(PREDICTIONS, TARGETS[::-1], SEEN, BASE)


@given(arrays(np.int16, (3, 3, 9), elements=st.integers(0, 3)))
def test_invariants(predictions):
    got = measure(predictions, TARGETS, SEEN, BASE).by_session
    for values in got.values():
        defined = values[~np.isnan(values)]
        assert ((defined >= 0) & (defined <= 100)).all()
    weight = np.array([6 / 6, 6 / 8, 6 / 9])
    mixed = got["base_acc"] * weight + np.nan_to_num(got["new_acc"]) * (1 - weight)
    np.testing.assert_allclose(mixed, got["avg_acc"])
    later = slice(1, None)
    assert (got["base_acc"][:, later] + got["fnr"][:, later] <= 100 + 1e-9).all()
    assert (got["new_acc"][:, later] + got["fpr"][:, later] <= 100 + 1e-9).all()
    low = np.minimum(got["base_acc"], got["new_acc"])[:, later]
    high = np.maximum(got["base_acc"], got["new_acc"])[:, later]
    assert ((got["hmean"][:, later] >= low - 1e-9) & (got["hmean"][:, later] <= high + 1e-9)).all()


def test_harmonic_mean_of_zeros_is_zero():
    np.testing.assert_array_equal(harmonic_mean(np.array([0.0, 0.0]), np.array([0.0, 5.0])), [0, 0])


def test_interval_is_students():
    values = np.array([1.0, 2.0, 4.0, 8.0])
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    got = summarise(values)
    assert (got.mean, got.n) == (3.75, 4)
    assert (got.low, got.high) == pytest.approx((low, high))
    assert got.sd == pytest.approx(values.std(ddof=1))


def test_one_draw_has_no_interval():
    got = summarise(np.array([3.0]))
    assert got.mean == 3.0
    assert math.isnan(got.low)
    assert math.isnan(got.sd)
