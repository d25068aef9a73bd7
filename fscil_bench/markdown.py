"""Numbers and tables as text."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fscil_bench.metrics import Summary

DIGITS = 6  # of computed numbers in CSV and JSON: what no library or machine changes


def number(value: float | None, *, signed: bool = False, digits: int = 2) -> str:
    """With as many decimals as `digits`; a dash for what is not defined."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:{'+' if signed else ''}.{digits}f}"


def counted(count: int, noun: str) -> str:
    """`1 draw`, `2 draws`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def interval(summary: Summary, *, signed: bool = False, digits: int = 2) -> str:
    """`low to high`, or a dash where one draw gives none."""
    if summary.n < 2:
        return "–"
    return " to ".join(number(end, signed=signed, digits=digits) for end in (summary.low, summary.high))


def spread(summary: Summary) -> str:
    """`mean ± half of the interval (sd)`."""
    return f"{number(summary.mean)} ± {number(summary.high - summary.mean)} ({number(summary.sd)})"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table; the first `left` columns hold text, the others numbers."""
    rule = ["---" if i < left else "---:" for i in range(len(columns))]
    lines = [columns, rule, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def csv_text(lines: Sequence[Mapping[str, Any]]) -> str:
    """CSV of lines that have the same keys; numbers are rounded, what is not defined is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: rounded(value) for key, value in line.items()} for line in lines)
    return text.getvalue()


def summary_cells(name: str, summary: Summary | None) -> dict[str, float | None]:
    """A summary's cells in a line of CSV, empty if there is none."""
    parts = ("mean", "sd", "low", "high")
    return {f"{name}_{part}": None if summary is None else getattr(summary, part) for part in parts}


def rounded(value: Any) -> Any:
    """A number as CSV and JSON have it, empty where it is not defined; anything else as it is."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else round(float(value), DIGITS)
