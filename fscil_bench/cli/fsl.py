"""`fscil-bench fsl`: one method in few-shot episodes."""

import json
from pathlib import Path

import click

from fscil_bench.cli.options import baseline_of
from fscil_bench.progress import counter
from fscil_bench.protocols import full_episodes, load_protocol
from fscil_bench.registry import configure, require_method
from fscil_bench.settings import split_assignments


@click.command()
@click.option("--method", required=True, help="A method's name (`fscil-bench ls methods`), or X+Y: X calibrated by Y.")
@click.option("--dataset", required=True, help="A dataset's name; `fscil-bench ls datasets` lists them.")
@click.option(
    "--shots", type=click.IntRange(min=1), multiple=True, default=(1, 5), show_default=True, help="Repeatable."
)
@click.option("--ways", type=click.IntRange(min=2), default=5, show_default=True, help="Classes of an episode.")
@click.option("--queries", type=click.IntRange(min=1), default=15, show_default=True, help="Of each class.")
@click.option("--episodes", type=click.IntRange(min=1), help="How many. [default: 10000, or 2000 if costly]")
@click.option("--seed", type=click.IntRange(min=0, max=2**63), default=0, show_default=True, help="Of the episodes.")
@click.option("--baseline", help="Also play this method and show paired differences. [default: the method's own]")
@click.option("--backbone", help="A backbone's id or folder. [default: the dataset's]")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change a setting of the method. Repeatable."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Root of records."
)
@click.option("--json", "as_json", is_flag=True, help="Print the record and the differences as one JSON document.")
def fsl(
    method: str,
    dataset: str,
    shots: tuple[int, ...],
    ways: int,
    queries: int,
    episodes: int | None,
    seed: int,
    baseline: str | None,
    backbone: str | None,
    settings: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Play few-shot episodes with a method and print its mean accuracy.

    An episode has some of the dataset's new classes, a few labelled images of each, and others to classify among those
    classes, all drawn from training and test images alike. The base classes may be learned from but are no answers. The
    same seed gives the same episodes to every method, whatever their number, and the same queries for all shots.

    \b
    Examples:
      fscil-bench fsl --method teen --dataset cifar100
      fscil-bench fsl --method simteen --dataset cifar100 --shots 5 --baseline teen --episodes 2000
    """
    for name in filter(None, (method, baseline)):
        require_method(name)
    load_protocol(dataset)
    given = split_assignments(settings)

    from fscil_bench.cli.show_episodes import show_episodes
    from fscil_bench.episode_results import episode_record, store_episodes
    from fscil_bench.evaluate import Arena
    from fscil_bench.files import exclusive, plain, require_writable
    from fscil_bench.keeping import store_unless_fuller
    from fscil_bench.leaderboard.statistics import differences_in_episodes
    from fscil_bench.protocols.episodes import Plan
    from fscil_bench.results import lock_path, record_path

    configured = configure(method, dataset, given)
    minus = baseline_of(configured, baseline, dataset, given)
    require_writable(out, "--out")
    arena = Arena(dataset, backbone, objective=configured.method.objective)
    for each in filter(None, (configured, minus)):
        arena.require(each, "fsl")
    count = episodes or full_episodes(costly="fsl" in configured.method.costly)
    plan = Plan(tuple(sorted(set(shots))), ways, queries, count, seed)
    place = record_path(out, configured, arena.protocol, arena.backbone, "fsl")
    with exclusive(lock_path(place), f"writing {place.name}"):
        with counter(f"{method}, episodes", count) as advance:
            result = arena.play(configured, plan, advance)
        store_unless_fuller(place, episode_record(result), lambda: store_episodes(place, result))
    differences, other = {}, minus.label if minus else None
    if minus is not None:
        with counter(f"{other}, episodes", count) as advance:
            base = arena.play(minus, plan, advance)
        differences = differences_in_episodes(result.played, base.played)
    if as_json:
        by_shots = plain({str(key): vars(summary) for key, summary in differences.items()})
        click.echo(json.dumps({**episode_record(result), "paired": {"baseline": other, "differences": by_shots}}))
        return
    show_episodes(result, other, differences)
    click.echo(f"Record: {place}")
