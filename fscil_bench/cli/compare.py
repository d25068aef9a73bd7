"""`fscil-bench compare`: methods side by side."""

import json
from pathlib import Path

import click

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.metrics import HEADLINE
from fscil_bench.progress import counter, note
from fscil_bench.protocols import load_protocol
from fscil_bench.registry import load_method, require_method


@click.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@click.option("--dataset", default="cifar100", show_default=True, help="A dataset's name.")
@click.option("--backbone", help="Only rows of this backbone (an id or a folder). [default: the dataset's]")
@click.option("--baseline", help="The row that differences are taken from. [default: what most rows build on]")
@click.option(
    "--sort", type=click.Choice(list(HEADLINE)), default="hmean", show_default=True, help="What ranks the rows."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Your own records."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def compare(
    methods: tuple[str, ...],
    dataset: str,
    backbone: str | None,
    baseline: str | None,
    sort: str,
    out: Path,
    as_json: bool,
) -> None:
    """Show methods side by side on one dataset and backbone, with paired differences over the same draws.

    Reads the records that come with fscil-bench and your own under ./runs. A METHOD without a record is measured first
    and recorded under --out; without any METHOD, every method that is not costly is shown, and every recorded one.
    Few-shot episodes are shown where `fscil-bench fsl` has recorded them.

    \b
    Examples:
      fscil-bench compare --dataset cifar100
      fscil-bench compare teen simteen --dataset cifar100 --sort new_acc
    """
    for name in filter(None, (*methods, baseline)):
        require_method(name)
    protocol = load_protocol(dataset)

    from fscil_bench.backbones.store import default_backbone, find_backbone
    from fscil_bench.leaderboard.comparison import Comparison, definitions, missing_tasks, rows_for
    from fscil_bench.leaderboard.episode_comparison import EpisodeComparison
    from fscil_bench.leaderboard.measuring import cheap, declared_baseline, tasks_for

    needed = next((need for name in methods if (need := load_method(name).objective)), None)
    found = find_backbone(backbone) if backbone else default_backbone(protocol, needed)
    for name in filter(None, (*methods, baseline)):
        found.require_suits(name, load_method(name).objective)
    base = baseline or declared_baseline(methods, dataset)
    named = [name for name in dict.fromkeys((*methods, base)) if name]
    shown = named if methods else []
    loaded = rows_for(protocol, found, shown, out)
    tasks = tasks_for(shown or dict.fromkeys((*cheap(), *named)), dataset, [found])
    if missing := missing_tasks(loaded.rows, tasks):
        from fscil_bench.files import require_writable
        from fscil_bench.leaderboard.measuring import measure_rows

        require_writable(out, "--out")
        with counter("measuring", len(missing)) as advance:
            measure_rows(missing, out, lambda task, outcome: advance(1))
        loaded = rows_for(protocol, found, shown, out)
    for problem in loaded.problems:
        note(f"Left out: {problem}")
    if not loaded.rows and not loaded.episodes:
        hint = "name a METHOD to measure it" if protocol.sessions else "`fscil-bench fsl` plays its few-shot episodes"
        raise UsageError(f"nothing to compare on {dataset} with {found.id}: {hint}")
    comparison = Comparison.of(loaded.rows, base if loaded.rows else None, sort)
    few_shot = EpisodeComparison.of(loaded.episodes, base)
    if as_json:
        of = {"dataset": dataset, "backbone": found.id, "definitions": definitions()}
        click.echo(json.dumps({**of, **comparison.as_data(), "episodes": few_shot.as_data()}))
    else:
        from fscil_bench.cli.show_comparison import show_comparison

        show_comparison(comparison, few_shot, protocol, found)
    if failed := sorted({row.label for row in loaded.rows if row.failed and row.method in methods}):
        raise FscilError(f"{', '.join(failed)} failed, as said above")
