"""`fscil-bench check`: do the recorded numbers still hold?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.progress import counter
from fscil_bench.registry import require_method

if TYPE_CHECKING:
    from fscil_bench.backbones.store import Backbone
    from fscil_bench.leaderboard.check import Verdict


@click.command()
@click.option(
    "--quick",
    is_flag=True,
    help="Of each row one draw, or 300 episodes; of costly ones sessions 0 to 2 of one draw, or 40 episodes.",
)
@click.option("--method", "methods", multiple=True, help="Only rows of this method. Repeatable.")
@click.option(
    "--backbone", "folders", multiple=True, help="The folder of a backbone that is not in your store. Repeatable."
)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="A leaderboard folder. [default: ./leaderboards, else the shipped one]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def check(quick: bool, methods: tuple[str, ...], folders: tuple[str, ...], root: Path | None, as_json: bool) -> None:
    """Measure recorded rows anew and compare every number with its record. Exits with 1 if one moved.

    Closed forms must agree to 0.005 points in both directions, methods that draw random numbers to 0.05, or to three
    answers where episodes are few; stored predictions, and counts of every episode, must be the same but for ties;
    generated tables must be those the records give. A row that moved is named with metric, expected and found value,
    and the input that changed: settings, bank, protocol or code.
    """
    for name in methods:
        require_method(name)

    from fscil_bench.backbones.store import find_backbone
    from fscil_bench.leaderboard.places import leaderboard_root
    from fscil_bench.leaderboard.rows import load_rows

    outside = {backbone.id: backbone for backbone in map(find_backbone, folders)}
    folder = leaderboard_root(root)
    loaded = load_rows([(folder / "records", False)], list(outside.values()))
    rows = [row for row in (*loaded.rows, *loaded.episodes) if not methods or row.method in methods]
    if not rows and not loaded.problems:
        raise UsageError(f"no records to check in {folder / 'records'}: `fscil-bench leaderboard update` makes them")

    from fscil_bench.leaderboard.check import check_row
    from fscil_bench.leaderboard.check_episodes import check_episodes
    from fscil_bench.leaderboard.rows import EpisodeRow
    from fscil_bench.leaderboard.tables import stale_tables
    from fscil_bench.markdown import counted

    verdicts = []
    with counter("checking rows", len(rows)) as advance:
        for row in rows:
            place = _folder(outside, row.backbone)
            if isinstance(row, EpisodeRow):
                verdicts.append(check_episodes(row, place, quick=quick))
            else:
                verdicts.append(check_row(row, place, quick=quick))
            advance(1)
    stale = [] if methods else stale_tables(folder, loaded.rows, loaded.episodes)
    failed = [verdict for verdict in verdicts if verdict.failed]
    if as_json:
        click.echo(json.dumps({"rows": [_data(v) for v in verdicts], "stale": stale, "refused": loaded.problems}))
    else:
        _show(failed, stale, loaded.problems)
        click.echo(f"{len(verdicts) - len(failed)} rows hold, {len(failed)} do not")
    if failed or stale or loaded.problems:
        parts = [f"{len(failed)} of {counted(len(verdicts), 'row')} moved"] if failed else []
        parts += [f"{counted(len(stale), 'table')} stale"] if stale else []
        parts += [f"{counted(len(loaded.problems), 'record')} refused"] if loaded.problems else []
        raise FscilError(
            f"{', '.join(parts)}: mend the code, or, if the change is meant, run `fscil-bench leaderboard update`"
        )


def _folder(outside: "dict[str, Backbone]", identity: str) -> str | None:
    return str(outside[identity].folder) if identity in outside else None


def _show(failed: "list[Verdict]", stale: list[str], refused: list[str]) -> None:
    from fscil_bench.cli.render import show_table
    from fscil_bench.markdown import number

    rows = []
    for verdict in failed:
        row = verdict.row
        changed = ", ".join(verdict.changed) or "none that is known: library versions or machine?"
        for m in verdict.moved:
            where = f"{m.metric}, {m.where}, {m.draw}"
            values = [number(m.expected), number(m.got), number(m.difference, signed=True)]
            rows.append([row.label, row.protocol, row.backbone, where, changed, *values])
    if rows:
        columns = ["method", "dataset", "backbone", "metric (its largest move)", "input changed"]
        show_table("numbers that moved", [*columns, "expected", "got", "difference"], rows, left=5)
    for verdict in failed:
        for problem in verdict.problems:
            of = " in few-shot episodes" if verdict.row.kind == "fsl" else ""
            click.echo(f"{verdict.row.label} on {verdict.row.protocol}{of}, {verdict.row.backbone}: {problem}")
    for name in stale:
        click.echo(f"{name} is not what the records give")
    for text in refused:
        click.echo(f"refused: {text}")


def _data(verdict: "Verdict") -> dict[str, object]:
    return {
        "method": verdict.row.label,
        "dataset": verdict.row.protocol,
        "backbone": verdict.row.backbone,
        "kind": verdict.row.kind,
        "holds": not verdict.failed,
        "changed": verdict.changed,
        "problems": verdict.problems,
        "moved": [
            {**vars(m), "difference": None if m.difference != m.difference else m.difference} for m in verdict.moved
        ],
    }
