"""`fscil-bench data`: get datasets, and check them."""

from pathlib import Path

import click

from fscil_bench.cli.render import show_table
from fscil_bench.datasets import find_root, reader, require_root
from fscil_bench.errors import FscilError, UsageError

ROOT = click.option(
    "--data-root", type=click.Path(path_type=Path), help="Where datasets lie. [default: $FSCIL_BENCH_DATA]"
)


@click.group()
def data() -> None:
    """Get datasets and check them."""


@data.command()
@click.argument("dataset")
@ROOT
@click.option("--archive", type=click.Path(path_type=Path), help="Take this local copy of the official archive.")
def prepare(dataset: str, data_root: Path | None, archive: Path | None) -> None:
    """Put the official DATASET under the data root: downloaded, or from a local archive. Its md5 is checked."""
    module = reader(dataset)
    root = find_root(data_root)
    if root is None:
        raise UsageError("no data root: pass --data-root DIR or set FSCIL_BENCH_DATA to the folder for your datasets")
    click.echo(f"{dataset} is ready in {module.prepare(root, archive)}")


@data.command()
@click.argument("dataset")
@ROOT
@click.option("--all", "every", is_flag=True, help="Show the counts of every class.")
def verify(dataset: str, data_root: Path | None, every: bool) -> None:
    """Check DATASET under the data root against the official release, read every image, and list what is wrong."""
    report = reader(dataset).verify(require_root(data_root))
    splits = list(next(iter(report.counts.values())))
    if every:
        rows = [[name, *(str(by_split[s]) for s in splits)] for name, by_split in report.counts.items()]
        show_table(f"{dataset}: images by class", ["class", *splits], rows)
    totals = ", ".join(f"{report.total(s)} {s} images" for s in splits)
    click.echo(f"{dataset}: {len(report.counts)} classes, {totals}")
    for problem in report.problems:
        click.echo(f"  {problem}")
    if report.problems:
        raise FscilError(f"{dataset} is not as released: {len(report.problems)} problems, listed above")
    click.echo(f"{dataset} is complete: {report.compared} agree with the official release, every image can be read")
