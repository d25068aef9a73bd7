"""`fscil-bench analyze`: what lies behind a method's numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fscil_bench.analysis import require_sessions
from fscil_bench.cli.options import DRAWS
from fscil_bench.errors import UsageError
from fscil_bench.progress import counter, note
from fscil_bench.protocols import FEW, MANY, load_protocol
from fscil_bench.registry import configure, load_method, loadable, require_method

Command = TypeVar("Command", bound=Callable[..., Any])


def _options(command: Command) -> Command:
    """What all analyses take."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON document."),
        click.option(
            "--out", type=click.Path(path_type=Path), default=Path("analysis"), show_default=True, help="Root of files."
        ),
        click.option(
            "--draws", type=DRAWS, help=f"Random draws 0 .. N-1. [default: {MANY}, or {FEW} of methods that are costly]"
        ),
        click.option("--backbone", help="A backbone's id or folder. [default: the dataset's]"),
        click.option("--dataset", required=True, help="A dataset's name; `fscil-bench ls datasets` lists them."),
    ):
        command = option(command)
    return command


_methods = click.argument("methods", nargs=-1, metavar="[METHOD]...")


@click.group()
def analyze() -> None:
    """Look behind a method's numbers: numbers by session, offsets on scores, prototypes against their oracles."""


@analyze.command()
@_methods
@_options
@click.option("--baseline", help="The method that the others are held against. [default: what most build on]")
@click.option("--costly", is_flag=True, help="All methods, also those that take minutes to hours.")
def offset(
    methods: tuple[str, ...],
    dataset: str,
    backbone: str | None,
    draws: int | None,
    out: Path,
    as_json: bool,
    baseline: str | None,
    costly: bool,
) -> None:
    """How much of a gain on new classes is a better classifier, and how much a bias towards new classes?

    One offset, added to all new-class scores after the last session, trades base for new accuracy. For every METHOD
    (default: all that are not costly) this traces the whole curve, its area and the method's own place on it, and asks
    how much of the method's NAcc over the baseline the baseline reaches with a plain offset at the same BAcc.

    Curves of costly methods are kept beside the table, draw by draw: a call that was cut off goes on where it ended.

    \b
    Examples:
      fscil-bench analyze offset --dataset cifar100
      fscil-bench analyze offset teen simteen --dataset cifar100 --draws 20
      fscil-bench analyze offset --costly --dataset cifar100 --draws 10
    """
    if methods and costly:
        raise UsageError("--costly is about all methods: leave it out, or name none")
    _require_names(dataset, *methods, baseline)

    from fscil_bench.analysis.kept_curves import curves_of
    from fscil_bench.analysis.offset_report import OffsetReport
    from fscil_bench.analysis.variants import in_all_variants
    from fscil_bench.cli.show_offset import show_offset
    from fscil_bench.evaluate import Arena
    from fscil_bench.files import require_writable, write_bytes
    from fscil_bench.leaderboard.measuring import cheap, declared_baseline

    names = list(methods) or (loadable() if costly else cheap())
    base = baseline or declared_baseline(names, dataset)
    if base is None:
        verb = "builds" if len(names) == 1 else "build"
        raise UsageError(f"{', '.join(names)} {verb} on no other method: name one with --baseline")
    require_writable(out, "--out")
    if not methods and (left := [name for name in loadable() if name not in names]):
        note(f"Left out, as costly: {', '.join(left)}. --costly takes them too.")
    needed = next((need for name in methods if (need := load_method(name).objective)), None)
    arena = Arena(dataset, backbone, objective=needed)
    folder = out / dataset / arena.backbone.id
    traced = {}
    for label, configured in in_all_variants(arena, [base, *names], {base, *methods}).items():
        count = draws or (FEW if "fscil" in configured.method.costly else MANY)
        chosen = arena.draws(f"random:{seed}" for seed in range(count))
        with counter(f"{label}, draws", count) as advance:
            traced[label] = curves_of(arena, configured, chosen, folder / "curves", advance)
    report = OffsetReport(dataset, arena.backbone.id, base, traced)
    table, curve, picture = (folder / name for name in ("offset.csv", "offset-curves.csv", "offset.png"))
    write_bytes(table, report.csv().encode())
    write_bytes(curve, report.curve_csv().encode())
    report.draw(picture)
    if as_json:
        click.echo(json.dumps(report.as_data()))
        return
    show_offset(report)
    click.echo(f"Files: {table}, {curve}, {picture}")


@analyze.command()
@_methods
@_options
def prototypes(
    methods: tuple[str, ...], dataset: str, backbone: str | None, draws: int | None, out: Path, as_json: bool
) -> None:
    """Do calibrated prototypes come closer to the mean of all training images of their class?

    For every METHOD that calibrates class means (default: all of them) this gives the cosine of each new prototype to
    that oracle before and after calibration, plain and centred on the mean of the base prototypes, and the share of
    classes that came closer.

    \b
    Example:
      fscil-bench analyze prototypes teen simteen --dataset cifar100
    """
    _require_names(dataset, *methods)

    from fscil_bench.analysis.prototypes import Means, nearness, only_calibrates
    from fscil_bench.analysis.prototypes_report import PrototypesReport
    from fscil_bench.analysis.variants import in_all_variants
    from fscil_bench.cli.render import show_table
    from fscil_bench.evaluate import Arena
    from fscil_bench.files import require_writable, write_bytes
    from fscil_bench.markdown import counted

    names = list(methods) or [name for name in loadable() if only_calibrates(configure(name, dataset).method)]
    for name in names:
        if not only_calibrates(configure(name, dataset).method):
            raise UsageError(f"method {name} does not just calibrate class means: it has no prototypes to compare")
    require_writable(out, "--out")
    arena = Arena(dataset, backbone)
    means = Means(arena.split, arena.draws(f"random:{seed}" for seed in range(draws or MANY)))
    found = {}
    for label, configured in in_all_variants(arena, names, methods).items():
        found[label] = nearness(means, means.calibrated(configured.method))
    classes = arena.protocol.classes[arena.protocol.base :]
    report = PrototypesReport(dataset, arena.backbone.id, classes, found)
    table = out / dataset / arena.backbone.id / "prototypes.csv"
    write_bytes(table, report.csv().encode())
    if as_json:
        click.echo(json.dumps(report.as_data()))
        return
    title = (
        f"cosine of new prototypes to the mean of all training images of their class, {dataset}, {arena.backbone.id}"
    )
    show_table(f"{title}: mean over classes and {counted(draws or MANY, 'draw')}", report.columns(), report.rows())
    click.echo(
        "Centred: the mean of the base prototypes is taken away first, all at unit length; plain cosines of features "
        "after a ReLU are high whatever the class. Closer: share of classes, its interval cut off at 0 and 100 %. The "
        "oracle's images include the shots. Intervals are over draws and conditional on this one backbone."
    )
    click.echo(f"By class: {table}")


@analyze.command()
@click.argument("rows", nargs=-1, required=True, metavar="METHOD[@BACKBONE]...")
@_options
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Your own records."
)
def sessions(
    rows: tuple[str, ...],
    dataset: str,
    backbone: str | None,
    draws: int | None,
    out: Path,
    as_json: bool,
    runs: Path,
) -> None:
    """Draw AvgAcc, HMean and NAcc by session for any rows, with intervals, beside what is published.

    A row is METHOD or METHOD@BACKBONE (an id or a folder); METHOD alone is on --backbone. Numbers come from the records
    that come with fscil-bench and from yours under --runs. A row without a current one is measured, and recorded there
    unless --draws is given. Name rows in the order of your argument: each is also held against the one before it,
    paired over the same draws where both are on one bank, without a test where they are not.

    \b
    Examples:
      fscil-bench analyze sessions protonet teen --dataset cifar100
      fscil-bench analyze sessions protonet teen simteen+teen --dataset miniimagenet --draws 20
      fscil-bench analyze sessions teen teen@cub200-tf_efficientnet_lite0-frozen --dataset cub200
    """
    require_sessions(load_protocol(dataset))

    from fscil_bench.analysis.sessions import find_rows, load_series
    from fscil_bench.analysis.sessions_report import SessionsReport
    from fscil_bench.cli.show_sessions import show_sessions
    from fscil_bench.files import require_writable, write_bytes

    wanted = find_rows(rows, dataset, backbone)
    require_writable(out, "--out")
    series, problems = load_series(wanted, draws, runs, counter)
    for problem in problems:
        note(f"Left out: {problem}")
    report = SessionsReport(load_protocol(dataset), series)
    files = [out / dataset / f"sessions.{kind}" for kind in ("csv", "png", "pdf")]
    write_bytes(files[0], report.csv().encode())
    report.draw(*files[1:])
    if as_json:
        click.echo(json.dumps({**report.as_data(), "files": [str(file) for file in files]}))
        return
    show_sessions(report)
    click.echo(f"Files: {', '.join(map(str, files))}")


def _require_names(dataset: str, *methods: str | None) -> None:
    for name in filter(None, methods):
        require_method(name)
    require_sessions(load_protocol(dataset))
