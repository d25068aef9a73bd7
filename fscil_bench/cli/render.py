"""Tables and notes for people: rich on a terminal, whole Markdown in a pipe. No cell is ever cut."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from fscil_bench import markdown

GAP = 2  # blanks between the columns of a terminal's table


@dataclass(frozen=True)
class Column:
    header: str
    cells: Sequence[str]
    text: bool  # may be folded at its blanks; numbers may not, but their header may

    @property
    def whole(self) -> int:
        """The width it has on one line a row."""
        return max(map(cell_len, (self.header, *self.cells)))

    @property
    def least(self) -> int:
        """The width it has at least, folded."""
        pieces = [word for cell in self.cells for word in cell.split()] if self.text else self.cells
        return max(map(cell_len, (*self.header.split(), *pieces)), default=0)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table and a blank line; the first `left` columns hold text, the others numbers.

    A terminal too narrow for it gets the text folded and the numbers a few columns at a time; one that is too narrow
    for that too gets what a pipe gets.
    """
    console = Console(markup=False, emoji=False, highlight=False)
    found = [Column(header, [row[i] for row in rows], i < left) for i, header in enumerate(columns)]
    parts = _parts(found[:left], found[left:], console.width)
    if not sys.stdout.isatty() or any(_width(part, 0) > console.width for part in parts):
        print(f"**{title}**\n\n{markdown.table(columns, rows, left=left)}")
        return
    console.print(title, style="bold", soft_wrap=True)
    for part in parts:
        console.print(_table(part, console.width))
        console.print()


def show_notes(lines: Iterable[str]) -> None:
    """Print notes as a Markdown list and a blank line, so that no renderer runs them together."""
    if items := [f"- {line}" for line in lines]:
        print("\n".join(items) + "\n")


def _parts(text: list[Column], numbers: list[Column], room: int) -> list[list[Column]]:
    """The columns of as few tables as there is room for, the text in each of them."""
    parts = [text]
    for group in _groups(numbers):
        if parts[-1] is not text and _width([*parts[-1], *group], 0) > room:
            parts.append(text)
        parts[-1] = [*parts[-1], *group]
    return parts


def _groups(columns: Sequence[Column]) -> list[list[Column]]:
    """Columns that must stand together: one whose header is there several times is about the column before it."""
    counts = Counter(column.header for column in columns)
    groups: list[list[Column]] = []
    for column in columns:
        if groups and counts[column.header] > 1:
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


def _width(columns: Sequence[Column], cap: int) -> int:
    """Of a table whose columns are folded where they are wider than `cap`."""
    return sum(_folded(column, cap) for column in columns) + GAP * (len(columns) - 1)


def _folded(column: Column, cap: int) -> int:
    return min(column.whole, max(column.least, cap))


def _table(columns: Sequence[Column], room: int) -> Table:
    """As wide as it would like to be, the widest columns folded if there is no room for that."""
    cap = next(cap for cap in range(room, -1, -1) if _width(columns, cap) <= room)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column in columns:
        table.add_column(column.header, justify="left" if column.text else "right", width=_folded(column, cap))
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table
