"""Tables for people: rich on a terminal, whole Markdown in a pipe."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from fscil_bench import markdown


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table; the first `left` columns hold text, the others numbers."""
    if not sys.stdout.isatty():
        print(f"**{title}**\n\n{markdown.table(columns, rows, left=left)}")
        return
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < left else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
