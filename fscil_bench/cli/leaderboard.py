"""`fscil-bench leaderboard`: measure rows and write tables."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fscil_bench.errors import FscilError
from fscil_bench.progress import counter, note
from fscil_bench.registry import loadable, require_method

if TYPE_CHECKING:
    from fscil_bench.records import Kind


@click.group()
def leaderboard() -> None:
    """Measure the rows of a leaderboard and write its tables."""


@leaderboard.command()
@click.option("--method", "methods", multiple=True, help="Only this method. Repeatable. [default: all]")
@click.option(
    "--backbone", "names", multiple=True, help="Only this backbone (id or folder). Repeatable. [default: shipped ones]"
)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=Path("leaderboards"),
    show_default=True,
    help="The leaderboard's folder.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(["fscil", "fsl"]),
    multiple=True,
    default=("fscil", "fsl"),
    help="Only rows of sessions (fscil), or only of few-shot episodes (fsl). [default: both]",
)
@click.option("--missing", is_flag=True, help="Only rows that have no full record yet: goes on where an update ended.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes. [default: one a core]")
@click.option("--tables-only", is_flag=True, help="Measure nothing: only bring declared facts and tables up to date.")
def update(
    methods: tuple[str, ...],
    names: tuple[str, ...],
    root: Path,
    kinds: "tuple[Kind, ...]",
    missing: bool,
    workers: int | None,
    tables_only: bool,
) -> None:
    """Measure every row that runs from a feature bank; rewrite records whose inputs or numbers changed, and tables.

    A row is a method with its defaults, with settings that it declares to deserve a row, or with settings that are on
    record already; each for the sessions, and for few-shot episodes. Methods that fail become rows that say so.

    What methods declare of themselves (privileges, deviations, origins of settings) is brought up to date in all
    records; that changes no number.
    """
    for name in methods:
        require_method(name)

    from fscil_bench.backbones.store import find_backbone, list_backbones
    from fscil_bench.files import exclusive, require_writable
    from fscil_bench.leaderboard.declared import declare_anew
    from fscil_bench.leaderboard.measuring import measure_rows, recorded_tasks, tasks_for, unmeasured
    from fscil_bench.leaderboard.rows import load_rows
    from fscil_bench.leaderboard.tables import write_tables
    from fscil_bench.markdown import counted

    outside = [find_backbone(name) for name in names]
    require_writable(root, "--root")
    outcomes: Counter[str] = Counter()
    with exclusive(root / ".lock", "updating this leaderboard"):
        if not tables_only:
            shipped = [backbone for backbone in list_backbones() if backbone.shipped]
            backbones = outside or shipped
            tasks = tasks_for(methods or loadable(), None, backbones, kinds)
            tasks += recorded_tasks(root / "records", tasks, backbones, methods, kinds)
            if missing:
                tasks = unmeasured(tasks, root / "records", backbones)
            with counter("measuring rows", len(tasks)) as advance:

                def done(task: object, outcome: str) -> None:
                    outcomes[outcome.partition(":")[0]] += 1
                    if outcome != "unchanged":
                        note(f"{task}: {outcome}")
                    advance(1)

                measure_rows(tasks, root / "records", done, workers)
        declared = declare_anew(root / "records")
        loaded = load_rows([(root / "records", False)], outside)
        write_tables(root, loaded.rows, loaded.episodes)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "nothing measured"
    click.echo(f"{counts}; {len(loaded.rows) + len(loaded.episodes)} rows in the tables of {root}")
    if declared:
        click.echo(f"declared facts brought up to date in {len(declared)} records")
    for problem in loaded.problems:
        click.echo(f"left out: {problem}")
    if loaded.problems or outcomes["failed"]:
        left_out, failed = counted(len(loaded.problems), "record"), counted(outcomes["failed"], "method")
        raise FscilError(f"{left_out} left out, {failed} failed, named above")
