"""`fscil-bench sweep`: a method over a grid of settings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fscil_bench.cli.options import DRAWS
from fscil_bench.errors import UsageError
from fscil_bench.progress import counter, note
from fscil_bench.protocols import load_protocol
from fscil_bench.registry import Configured, configure, load_method, require_method
from fscil_bench.settings import as_text, assignments, split_assignments

if TYPE_CHECKING:
    from fscil_bench.analysis.sweep import Point


@click.command()
@click.option("--method", required=True, help="A method's name (`fscil-bench ls methods`), or X+Y.")
@click.option("--dataset", required=True, help="A dataset's name; choose settings on a validation one (cifar100-val).")
@click.option(
    "--grid",
    multiple=True,
    required=True,
    metavar="NAME=VALUES",
    help="A setting and its values: start:stop:step, or a list with commas. Repeatable.",
)
@click.option("--backbone", help="A backbone's id or folder. [default: the dataset's]")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Fix another setting at every point. Repeatable."
)
@click.option("--draws", type=DRAWS, default=20, show_default=True, help="Random draws 0 .. N-1.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("sweeps"), show_default=True, help="Root of sweeps."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def sweep(
    method: str,
    dataset: str,
    grid: tuple[str, ...],
    backbone: str | None,
    settings: tuple[str, ...],
    draws: int,
    out: Path,
    as_json: bool,
) -> None:
    """Measure a method at every point of a grid of settings, over the same random draws.

    Finished points are kept under --out: the same command goes on where an earlier one was cut off, and a larger grid
    measures only what is new. The best points stand beside the method's own settings. On a dataset's test images the
    best point of a grid is not a fair setting, and the output says so.

    \b
    Examples:
      fscil-bench sweep --method teen --dataset cifar100 --grid shift_weight=0:1:0.05 --grid tau=1,2,4,8,16,32,64
      fscil-bench sweep --method simteen --dataset cifar100 --grid k=1:9:2 --set shift_weight=0.2 --draws 50
    """
    require_method(method)
    protocol = load_protocol(dataset)

    from fscil_bench.analysis import require_sessions
    from fscil_bench.analysis.grid import grid_points, parse_grid

    require_sessions(protocol)
    fixed, axes = split_assignments(settings), parse_grid(grid)
    if both := sorted(fixed.keys() & axes.keys()):
        raise UsageError(f"{both[0]} is in --set and in --grid: give it once")
    configured = [configure(method, dataset, {**fixed, **point}) for point in grid_points(axes)]
    points = list({tuple(c.settings[axis] for axis in axes): c for c in configured}.values())  # 1 and 1.0 are the same
    given = _given(method, dataset, fixed)

    from fscil_bench.analysis.sweep import sweep_points
    from fscil_bench.analysis.sweep_report import Report
    from fscil_bench.cli.show_sweep import show_sweep
    from fscil_bench.evaluate import Arena
    from fscil_bench.files import exclusive, require_writable, sha256_json, write_bytes

    require_writable(out, "--out")
    arena = Arena(dataset, backbone, objective=points[0].method.objective)
    folder = out / protocol.name / arena.backbone.id / method
    chosen = arena.draws(f"random:{seed}" for seed in range(draws))
    with exclusive(folder / "sweep.lock", f"sweeping {method}"):
        wanted = {_key(c): c for c in (*points, *given.values())}
        with counter(f"{method}, points", len(wanted)) as advance:
            found = sweep_points(arena, [*wanted.values()], chosen, folder / "points", advance)
            measured = _collected(found, len(wanted))
        values = {axis: list(dict.fromkeys(p.settings[axis] for p in points)) for axis in axes}
        own = {name: measured[_key(c)] for name, c in given.items()}
        report = Report(method, fixed, protocol, arena.backbone.id, values, [measured[_key(c)] for c in points], own)
        stem = "-".join(axes) + (f"-{sha256_json(fixed)[:8]}" if fixed else "")
        table, picture = folder / f"{stem}.csv", folder / f"{stem}.png"
        write_bytes(table, report.csv().encode())
        drawn = report.draw(picture)
        if not drawn:
            picture.unlink(missing_ok=True)  # of a smaller grid of the same settings
    if as_json:
        click.echo(json.dumps({**report.as_data(), "csv": str(table), "png": str(picture) if drawn else None}))
        return
    show_sweep(report)
    click.echo(f"All points: {table}" + (f"; picture: {picture}" if drawn else ""))
    if not drawn:
        note("Note: no picture is drawn of more than two settings.")


def _collected(found: "Iterator[Point]", total: int) -> "dict[tuple[str, ...], Point]":
    """All points; says how many are on disk, from an earlier sweep or if this one is cut off."""
    measured: dict[tuple[str, ...], Point] = {}
    try:
        for point in found:
            measured[_key(point.configured)] = point
    except KeyboardInterrupt:
        note(f"{len(measured)} of {total} points are on disk: the same command goes on from there.")
        raise
    if kept := sum(point.kept for point in measured.values()):
        note(f"{kept} of {total} points were on disk already.")
    return measured


def _key(configured: Configured) -> tuple[str, ...]:
    """What tells points apart."""
    return tuple(f"{name}={value}" for name, value in sorted(configured.settings.items()))


def _given(method: str, dataset: str, fixed: dict[str, str]) -> dict[str, Configured]:
    """The settings that the method comes with: its defaults, alone and with what is fixed, and its variants."""
    found = {"default": configure(method, dataset)}
    if fixed:
        found[f"default with {assignments(fixed)}"] = configure(method, dataset, fixed)
    for variant in load_method(method).variants if "+" not in method else ():
        texts = {key: as_text(value) for key, value in variant.items()}
        found[assignments(texts)] = configure(method, dataset, texts)
    return found
