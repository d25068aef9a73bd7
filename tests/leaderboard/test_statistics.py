"""Paired comparisons against textbook cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fscil_bench.leaderboard.rows import Row
from fscil_bench.leaderboard.statistics import (
    Difference,
    common_baseline,
    corrected,
    difference,
    holm,
    p_value,
    percentile,
)


def row(name="a", values=(1.0, 2.0, 3.0), draws=None, bank="x", baseline=None):
    names = draws or [f"random:{i}" for i in range(len(values))]
    record = {
        "kind": "fscil",
        "method": {"name": name, "settings": {}, "origins": {}, "baseline": baseline, "costly": False},
        "protocol": {"name": "cifar100"},
        "backbone": {"id": "b", "bank_sha256": bank},
        "draws": {
            "names": names,
            "metrics": {"by_session": {key: [[v] for v in values] for key in ("avg_acc", "hmean")}},
        },
    }
    return Row(None, record)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_helps_and_keeps_the_order(values):
    adjusted = holm(values)
    assert all(a >= p for a, p in zip(adjusted, values, strict=True))
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


def test_families_are_corrected_each_by_itself():
    gaps = {name: Difference(None, p) for name, p in {"a": 0.01, "b": 0.02, "c": 0.03, "d": 0.04}.items()}
    got = corrected(gaps, {"a": "one", "b": "other", "c": "one", "d": None})
    assert {name: gap.p for name, gap in got.items()} == pytest.approx(
        {"a": 0.02, "b": 0.02, "c": 0.03, "d": np.nan}, nan_ok=True
    )
    assert list(got) == list(gaps)


def test_a_p_value_is_never_shown_as_nothing():
    assert [p_value(p) for p in (0.0, 1e-310, 3e-300, 0.0123, 1.0)] == ["<1e-300", "<1e-300", "3e-300", "0.01", "1"]
    assert p_value(np.nan) == "–"


def test_differences_pair_draws_by_name():
    one = row(values=(1.0, 2.0, 4.0), draws=["random:2", "random:0", "random:5"])
    other = row("b", values=(1.5, 0.0), draws=["random:0", "random:2"])
    gap = difference(one, other, "hmean")
    assert gap.summary.n == 2
    assert gap.summary.mean == pytest.approx(((1.0 - 0.0) + (2.0 - 1.5)) / 2)


def test_wilcoxon_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=30), rng.normal(size=30) + 0.3
    gap = difference(row(values=a), row("b", values=b), "hmean")
    assert gap.p == pytest.approx(stats.wilcoxon(a - b).pvalue)
    assert difference(row(values=a), row("b", values=a), "hmean").p == 1.0


def test_other_banks_are_never_paired():
    assert difference(row(), row("b", bank="y"), "hmean") is None
    assert difference(row(values=(1.0,)), row("b", values=(2.0,)), "hmean") is None


def test_percentile_counts_ties_half():
    assert percentile(2.0, np.array([1.0, 2.0, 2.0, 3.0])) == 50.0
    assert percentile(9.0, np.array([1.0, 2.0])) == 100.0


def test_the_common_baseline_is_what_most_rows_build_on():
    assert common_baseline([row(baseline="p"), row(baseline="q"), row(baseline="p"), row()]) == "p"
    assert common_baseline([row()]) is None


def test_own_rows_do_not_choose_the_baseline_of_shipped_ones():
    own = [replace(row(baseline="q"), own=True) for _ in range(3)]
    assert common_baseline([row(baseline="p"), *own]) == "p"
    assert common_baseline([row(), *own]) == "q"
