"""Numbers and tables as text."""

import math
from collections.abc import Sequence

from fscil_bench.metrics import Summary


def number(value: float | None, *, signed: bool = False) -> str:
    """Two decimals; a dash for what is not defined."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:+.2f}" if signed else f"{value:.2f}"


def interval(summary: Summary, *, signed: bool = False) -> str:
    """`low to high`, or a dash where one draw gives none."""
    if summary.n < 2:
        return "–"
    return f"{number(summary.low, signed=signed)} to {number(summary.high, signed=signed)}"


def spread(summary: Summary) -> str:
    """`mean ± half of the interval (sd)`."""
    return f"{number(summary.mean)} ± {number(summary.high - summary.mean)} ({number(summary.sd)})"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table; the first `left` columns hold text, the others numbers."""
    rule = ["---" if i < left else "---:" for i in range(len(columns))]
    lines = [columns, rule, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
