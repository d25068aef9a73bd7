"""Tables and text for people: rich on a terminal, whole Markdown in a pipe."""

import math
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table; the first `left` columns hold text, the others numbers."""
    if sys.stdout.isatty():
        table = Table(title=title, title_justify="left", title_style="bold")
        for i, column in enumerate(columns):
            table.add_column(column, justify="left" if i < left else "right")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    rule = ["---" if i < left else "---:" for i in range(len(columns))]
    lines = [list(columns), rule, *[list(row) for row in rows]]
    print(f"**{title}**\n")
    print("\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n")


def number(value: float | None, *, signed: bool = False) -> str:
    """Two decimals; a dash for what is not defined."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:+.2f}" if signed else f"{value:.2f}"
