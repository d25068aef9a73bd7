"""`fscil-bench run`: one method on one dataset."""

import json
from pathlib import Path

import click

from fscil_bench.cli.options import DRAWS, baseline_of
from fscil_bench.progress import counter, note
from fscil_bench.protocols import load_protocol
from fscil_bench.registry import configure, require_method
from fscil_bench.settings import split_assignments


@click.command()
@click.option("--method", required=True, help="A method's name (`fscil-bench ls methods`), or X+Y: X calibrated by Y.")
@click.option("--dataset", required=True, help="A dataset's name; `fscil-bench ls datasets` lists them.")
@click.option("--backbone", help="A backbone's id or folder. [default: the dataset's]")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change a setting of the method. Repeatable."
)
@click.option("--draws", type=DRAWS, help="Random draws 0 .. N-1. [default: 100, or 10 if costly]")
@click.option("--draw", "names", multiple=True, metavar="DRAW", help="One draw: standard or random:SEED. Repeatable.")
@click.option("--baseline", help="Also run this method and show paired differences. [default: the method's own]")
@click.option("--data-root", type=click.Path(path_type=Path), help="Where datasets lie. [default: $FSCIL_BENCH_DATA]")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Root of records."
)
@click.option("--json", "as_json", is_flag=True, help="Print the record and the differences as one JSON document.")
def run(
    method: str,
    dataset: str,
    backbone: str | None,
    settings: tuple[str, ...],
    draws: int | None,
    names: tuple[str, ...],
    baseline: str | None,
    data_root: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Walk a method through the sessions of a dataset and print what it scores.

    Without --draw or --draws, the literature's fixed draw is taken (where it can be resolved) and 100 random draws of
    the support images, so that the numbers come with an interval.

    \b
    Examples:
      fscil-bench run --method teen --dataset cifar100
      fscil-bench run --method teen --dataset cifar100 --set variant=paper
      fscil-bench run --method simteen --dataset cifar100 --set k=1 --draws 20 --json
    """
    for name in filter(None, (method, baseline)):
        require_method(name)
    load_protocol(dataset)
    given = split_assignments(settings)

    from fscil_bench.cli.show_result import show_result
    from fscil_bench.evaluate import Arena
    from fscil_bench.files import exclusive, plain, require_writable
    from fscil_bench.keeping import store_unless_fuller
    from fscil_bench.leaderboard.statistics import differences_between
    from fscil_bench.results import as_record, lock_path, record_path, store

    configured = configure(method, dataset, given)
    minus = baseline_of(configured, baseline, dataset, given)
    require_writable(out, "--out")
    arena = Arena(dataset, backbone, data_root, objective=configured.method.objective)
    for each in filter(None, (configured, minus)):
        arena.require(each)
    if names or draws is not None:
        chosen = arena.draws([*names, *(f"random:{seed}" for seed in range(draws or 0))])
    else:
        chosen, missing = arena.full_draws(costly="fscil" in configured.method.costly)
        if missing:
            note(f"Note: {missing}. Random draws are used; published rows are of another draw.")
    place = record_path(out, configured, arena.protocol, arena.backbone)
    with exclusive(lock_path(place), f"writing {place.name}"):
        with counter(f"{method}, draws", len(chosen)) as advance:
            result = arena.run(configured, chosen, advance)
        store_unless_fuller(place, as_record(result), lambda: store(place, result))
    differences, other = {}, minus.label if minus else None
    if minus is not None and result.random:
        with counter(f"{other}, draws", len(chosen)) as advance:
            base = arena.run(minus, chosen, advance)
        differences = differences_between(as_record(result), as_record(base))
    if as_json:
        by_metric = plain({key: vars(summary) for key, summary in differences.items()})
        click.echo(json.dumps({**as_record(result), "paired": {"baseline": other, "differences": by_metric}}))
        return
    show_result(result, other, differences)
    click.echo(f"Record: {place}")
