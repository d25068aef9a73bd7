"""`fscil-bench backbone`: train backbones, extract feature banks."""

from pathlib import Path
from typing import Literal

import click

from fscil_bench.errors import UsageError
from fscil_bench.markdown import number
from fscil_bench.settings import split_assignments

ROOT = click.option(
    "--data-root", type=click.Path(path_type=Path), help="Where datasets lie. [default: $FSCIL_BENCH_DATA]"
)
DEVICE = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
THREADS = click.option("--threads", type=click.IntRange(min=1), help="CPU threads of each process.")
STORAGE = click.option("--storage", default="f16", show_default=True, help="How the bank stores features: f16 or f32.")


@click.group()
def backbone() -> None:
    """Train backbones on base classes, and extract feature banks from them."""


@backbone.command()
@click.option("--dataset", required=True, help="A dataset with an image reader; `fscil-bench ls datasets`.")
@click.option("--recipe", default="short", show_default=True, help="A named training recipe: cec, teen, short.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change a value of the recipe. Repeatable."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--select",
    type=click.Choice(["last", "val", "test"]),
    default="last",
    show_default=True,
    help="Which epoch counts: the last, the best on held-out training images, or the best on test images (leaky: "
    "what most papers did; the card says so).",
)
@click.option("--val-per-class", type=click.IntRange(min=1), default=50, show_default=True, help="For --select val.")
@click.option("--devices", type=click.IntRange(min=1), default=1, show_default=True, help="Processes (GPUs).")
@click.option("--precision", default="32-true", show_default=True, help="32-true, bf16-mixed or 16-mixed.")
@click.option("--restart", is_flag=True, help="Throw an earlier training of this id away instead of resuming it.")
@ROOT
@DEVICE
@THREADS
@STORAGE
def train(
    dataset: str,
    recipe: str,
    settings: tuple[str, ...],
    seed: int,
    select: Literal["last", "val", "test"],
    val_per_class: int,
    devices: int,
    precision: str,
    restart: bool,
    data_root: Path | None,
    device: str,
    threads: int | None,
    storage: str,
) -> None:
    """Train a backbone on the base classes of DATASET, then extract its feature bank.

    A checkpoint is written after every epoch; the same command resumes a training that was cut off. The batch size of a
    recipe is that of all processes together, so the number of GPUs does not change what is trained.

    \b
    Examples:
      fscil-bench backbone train --dataset cifar100 --data-root ~/data
      fscil-bench backbone train --dataset cifar100 --recipe teen --device cuda --precision bf16-mixed
    """
    from fscil_bench.protocols import load_protocol

    protocol = load_protocol(dataset)

    from fscil_bench.backbones.recipes import load_recipe

    changed = load_recipe(recipe, dataset).with_changes(split_assignments(settings))

    from fscil_bench.backbones.machine import Machine
    from fscil_bench.backbones.make import make_backbone
    from fscil_bench.backbones.training import Plan

    plan = Plan(recipe=changed, n_classes=protocol.base, seed=seed, select=select, val_per_class=val_per_class)
    machine = Machine(device=device, devices=devices, precision=precision, threads=threads)
    made = make_backbone(plan, data_root, machine, restart=restart, storage=storage)
    _tell(made.id, made.folder, made.card["session0"][dataset])


@backbone.command()
@click.argument("name", metavar="BACKBONE")
@click.option("--dataset", required=True, help="The dataset whose images pass through the backbone.")
@ROOT
@DEVICE
@THREADS
@STORAGE
def extract(name: str, dataset: str, data_root: Path | None, device: str, threads: int | None, storage: str) -> None:
    """Pass every image of a dataset through BACKBONE (an id or a folder) once and store the features in its folder."""
    from fscil_bench.backbones.store import find_backbone
    from fscil_bench.protocols import load_protocol

    source = load_protocol(dataset).dataset
    found = find_backbone(name)
    if found.shipped:
        raise UsageError(f"{found.id} is shipped and not to be changed: copy {found.folder} and pass the copy")

    from fscil_bench import datasets
    from fscil_bench.backbones.extract import extract as extract_bank
    from fscil_bench.backbones.extract import session0_protocol
    from fscil_bench.backbones.machine import Machine
    from fscil_bench.files import require_writable

    require_writable(found.folder, "a copy of that folder")
    images = datasets.reader(source).open_images(datasets.require_root(data_root))
    made = extract_bank(found, images, Machine(device=device, threads=threads), storage)
    _tell(made.id, made.folder, made.card["session0"][session0_protocol(made.card, source).name])


def _tell(identity: str, folder: Path, session0: dict[str, float]) -> None:
    prototypes, learned = number(session0["prototypes"]), number(session0["learned_head"])
    click.echo(f"{identity}: session 0 AvgAcc {prototypes} with prototypes, {learned} with the learned head")
    click.echo(f"Backbone and bank: {folder}")
