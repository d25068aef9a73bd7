"""Grids given as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fscil_bench.analysis.grid import grid_points, parse_grid
from fscil_bench.errors import UsageError


def test_ranges_include_both_ends_and_are_exact():
    values = parse_grid(["shift_weight=0:1:0.05"])["shift_weight"]
    assert len(values) == 21
    assert (values[0], values[1], values[3], values[10], values[20]) == ("0", "0.05", "0.15", "0.5", "1")
    assert parse_grid(["k=10:30:10"])["k"] == ["10", "20", "30"]
    assert parse_grid(["k=1:10:4"])["k"] == ["1", "5", "9"]


@given(st.integers(-50, 50), st.integers(0, 40), st.integers(1, 9), st.integers(0, 3))
def test_ranges_step_evenly(start, length, step, digits):
    scale = 10**digits
    stop = start + length
    text = f"{start / scale:.{digits}f}:{stop / scale:.{digits}f}:{step / scale:.{digits}f}"
    got = [round(float(value) * scale) for value in parse_grid([f"x={text}"])["x"]]
    assert got == list(range(start, stop + 1, step))


def test_lists_and_ranges_mix_and_repeats_go():
    assert parse_grid(["a=1,2,1", "b=code,paper", "c=0:2:1,8"]) == {
        "a": ["1", "2"],
        "b": ["code", "paper"],
        "c": ["0", "1", "2", "8"],
    }


def test_every_combination_comes_once_the_last_axis_fastest():
    assert grid_points({"a": ["1", "2"], "b": ["x", "y"]}) == [
        {"a": "1", "b": "x"},
        {"a": "1", "b": "y"},
        {"a": "2", "b": "x"},
        {"a": "2", "b": "y"},
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a=0:1"], "expected start:stop:step"),
        (["a=0:1:0"], "expected start:stop:step"),
        (["a=1:0:0.1"], "expected start:stop:step"),
        (["a=0:nan:1"], "expected start:stop:step"),
        (["a=x:1:1"], "expected start:stop:step"),
        (["a=1,,2"], "a value is missing"),
        (["a="], "a value is missing"),
        (["a"], "expected name=start:stop:step or name=value,value"),
        (["a=1", "a=2"], "names one setting twice"),
        (["a=0:1:1e-9"], "take a larger step"),
        (["a=0:1:1e-5000"], "take a larger step"),
        (["a=0:1e999999:1e-999999"], "expected start:stop:step"),
        (["a=0:999:1", "b=0:999:1"], "1000000 points"),
    ],
)
def test_wrong_grids_are_named(texts, message):
    with pytest.raises(UsageError, match=message):
        parse_grid(texts)
