"""One look for every progress bar. Bars go to stderr and only to a terminal; results go to stdout."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def progress(detail: str = "", enabled: bool = True) -> Progress:
    """A progress display; `detail` is a format string over the task's fields, as "loss {task.fields[loss]:.3f}"."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *([TextColumn(detail)] if detail else []),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    console = _console()
    return Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal))


@contextmanager
def counter(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A plain bar; what it yields is called with the number of things just done."""
    with progress() as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


def note(text: str) -> None:
    """A line for the person watching; never part of the result."""
    _console().print(text)


def _console() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
