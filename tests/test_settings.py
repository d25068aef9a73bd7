"""Settings given as text."""

from dataclasses import dataclass
from typing import Literal

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.registry import configure
from fscil_bench.settings import parse_settings, split_assignments


@dataclass
class Owner:
    weight: float = 0.5
    count: int = 1
    flag: bool = False
    mode: Literal["a", "b"] = "a"
    maybe: int | None = None
    sizes: tuple[int, ...] = ()


def test_values_get_their_types():
    given = {"weight": "1e-2", "count": "3", "flag": "True", "mode": "b", "maybe": "none", "sizes": "1,2"}
    expected = {"weight": 0.01, "count": 3, "flag": True, "mode": "b", "maybe": None, "sizes": (1, 2)}
    assert parse_settings(Owner, given, "x") == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weight": "big"}, "weight=big is not a number"),
        ({"weight": "inf"}, "weight=inf is not a finite number"),
        ({"count": "1.5"}, "count=1.5 is not a whole number"),
        ({"flag": "yes"}, "flag=yes is not true or false"),
        ({"mode": "c"}, "mode=c is not one of a, b"),
        ({"wait": "1"}, "unknown setting of x 'wait': did you mean 'weight'"),
    ],
)
def test_wrong_values_are_named(given, message):
    with pytest.raises(UsageError, match=message):
        parse_settings(Owner, given, "x")


@pytest.mark.parametrize("pair", ["weight", "=1"])
def test_assignments_need_a_name_and_a_value(pair):
    with pytest.raises(UsageError, match="expected name=value"):
        split_assignments([pair])


def test_a_name_has_one_value():
    with pytest.raises(UsageError, match="--set names tau twice: give it one value"):
        split_assignments(["tau=4", "tau = 8"])


@pytest.mark.parametrize("value", ["1.5", "-0.1"])
def test_ranges_are_checked(value):
    with pytest.raises(UsageError, match=r"shift_weight=.* must be between 0 and 1"):
        configure("teen", "cifar100", {"shift_weight": value})


def test_origins_tell_where_a_value_comes_from():
    got = configure("teen", "cifar100", {"tau": "8"})
    assert got.origins == {"shift_weight": "code", "tau": "user", "variant": "code"}
    assert got.changed == {"tau": 8.0}
    assert configure("teen", "cifar100", {"tau": "16"}).changed == {}
