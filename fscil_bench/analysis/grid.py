"""Grids of settings, given as text: `--grid name=0:1:0.05` or `--grid name=1,2,4`."""

import itertools
from collections.abc import Mapping, Sequence
from decimal import Decimal

from fscil_bench.errors import UsageError
from fscil_bench.settings import split_assignments

LIMIT = 100_000  # points
SYNTAX = "name=start:stop:step or name=value,value"


def parse_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """The values of each axis, as `--set` takes them, in the order given."""
    if len({text.partition("=")[0].strip() for text in texts}) < len(texts):
        raise UsageError("--grid names one setting twice: give all its values at once")
    axes = {name: _values(name, text) for name, text in split_assignments(texts, "--grid", SYNTAX).items()}
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > LIMIT:
        raise UsageError(f"the grid has {count} points, more than {LIMIT}: take larger steps")
    return axes


def grid_points(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination of values, the last axis fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _values(name: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    values = [value for part in parts for value in (_range(name, part) if ":" in part else [part])]
    if "" in values:
        raise UsageError(f"--grid {name}={text}: a value is missing")
    return list(dict.fromkeys(values))


def _range(name: str, text: str) -> list[str]:
    """start:stop:step, both ends included; decimal, so that no value is off in its last digit."""
    try:
        start, stop, step = (Decimal(part) for part in text.split(":"))
        if not (start.is_finite() and stop.is_finite() and step.is_finite() and step > 0 and stop >= start):
            raise ValueError
        steps = (stop - start) / step
    except (ArithmeticError, ValueError):
        raise UsageError(
            f"--grid {name}={text}: expected start:stop:step with a step above 0 and stop at or above start, or values "
            "with commas"
        ) from None
    if steps >= LIMIT:
        raise UsageError(f"--grid {name}={text} has more than {LIMIT} values: take a larger step")
    return [str((start + i * step).normalize() + 0) for i in range(int(steps) + 1)]
