"""From a plan to a backbone in the store: train on the base classes, save weights and card, extract the bank."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save_file

from fscil_bench import datasets
from fscil_bench.backbones.extract import extract
from fscil_bench.backbones.machine import Machine
from fscil_bench.backbones.networks import TIMM
from fscil_bench.backbones.pretraining import overlap
from fscil_bench.backbones.recipes import NO_WEIGHTS, Recipe, load_recipe
from fscil_bench.backbones.store import (
    SCHEMA,
    WEIGHTS,
    Backbone,
    bank_name,
    home,
    list_backbones,
    open_backbone,
    write_card,
)
from fscil_bench.backbones.training import Images, Plan, Trained, hold_out, train
from fscil_bench.backbones.weights import initial_weights, rounded
from fscil_bench.banks import require_storage
from fscil_bench.datasets.images import ImageSet, Rows, View
from fscil_bench.environment import environment
from fscil_bench.errors import UsageError
from fscil_bench.files import exclusive, require_writable, sha256_file, sha256_json, write_atomically
from fscil_bench.progress import note
from fscil_bench.protocols import Protocol, load_protocol
from fscil_bench.protocols.draws import roles

DEFAULT_SEED = 1


def backbone_id(plan: Plan) -> str:
    """`<dataset>-<network>-<recipe>[-sSEED]`, with 8 hex digits more if the recipe was changed or an epoch selected."""
    recipe = plan.recipe
    seed = f"-s{plan.seed}" if plan.seed != DEFAULT_SEED else ""
    published = replace(plan, recipe=load_recipe(recipe.name, recipe.dataset), select="last")
    other = f"-{plan.checksum()[:8]}" if plan.checksum() != published.checksum() else ""
    return f"{recipe.dataset}-{recipe.network.removeprefix(TIMM)}-{recipe.name}{seed}{other}"


def make_backbone(
    plan: Plan,
    data_root: Path | None,
    machine: Machine,
    *,
    restart: bool = False,
    storage: str = "f16",
    weights: Path | None = None,
    weights_storage: Literal["f32", "f16"] = "f32",
) -> Backbone:
    """Train by `plan` (or go on with a training that was cut off) and store the result under its id.

    `weights` is the file that the recipe's weights are in, where they are in one. With a `weights_storage` of f16 the
    trained weights are rounded before the bank is extracted, so that the two agree.
    """
    identity = backbone_id(plan)
    if any(backbone.shipped and backbone.id == identity for backbone in list_backbones()):
        identity += "-own"
    target = home() / "backbones" / identity
    state = home() / "training" / identity
    protocol = load_protocol(plan.recipe.dataset)
    require_storage(storage)
    require_writable(home(), "FSCIL_BENCH_HOME")
    initial = initial_weights(plan.recipe, weights)
    images = datasets.reader(protocol.dataset).open_images(datasets.require_root(data_root))
    with exclusive(state.with_suffix(".lock"), f"training {identity}"):
        if restart:
            shutil.rmtree(state, ignore_errors=True)
        trained = (target / "card.json").exists() and not restart and not state.exists()
        if trained and bank_name(protocol.dataset) in open_backbone(target).card["files"]:
            raise UsageError(f"{target} is there already: pass --restart to train it anew, or another --seed")
        if not trained:
            note(f"training {identity}; checkpoints in {state}")
            done = train(plan, *_images(images, protocol, plan), machine, state, initial)
            done = replace(done, weights=rounded(done.weights, weights_storage))
            shutil.rmtree(target, ignore_errors=True)
            _save(target, identity, plan, done, machine)
        made = extract(open_backbone(target), images, machine, storage)
        shutil.rmtree(state, ignore_errors=True)
    return made


def _images(images: ImageSet, protocol: Protocol, plan: Plan) -> tuple[Images, Images | None]:
    """The base classes' images to train on, and those that select the epoch, labelled in the protocol's order."""
    used = roles(protocol, images)

    def of_base(rows: Rows) -> Rows:
        return np.sort(rows[used.targets[rows] < protocol.base])

    def load(rows: Rows, view: View) -> Images:
        pictures = images.read(rows, view)
        return Images(pictures.pixels, torch.from_numpy(used.targets[rows]), pictures.aspect)

    recipe = plan.recipe
    rows = of_base(used.train)
    if plan.select == "val":
        kept, held = (part.numpy() for part in hold_out(torch.from_numpy(used.targets[rows]), plan))
        return load(rows[kept], recipe.train_view()), load(rows[held], recipe.test_view())
    held_out = load(of_base(used.test), recipe.test_view()) if plan.select == "test" else None
    return load(rows, recipe.train_view()), held_out


def _pretraining(recipe: Recipe) -> str:
    if recipe.weights == NO_WEIGHTS:
        return NO_WEIGHTS
    return f"{recipe.pretraining}, weights {recipe.weights}"


def _save(target: Path, identity: str, plan: Plan, trained: Trained, machine: Machine) -> None:
    weights = target / WEIGHTS
    write_atomically(weights, lambda temporary: save_file(trained.weights, temporary))
    recipe = plan.recipe
    card: dict[str, Any] = {
        "schema": SCHEMA,
        "id": identity,
        "dataset": recipe.dataset,
        "network": recipe.network,
        "recipe": recipe.as_data(),
        "plan_sha256": sha256_json(plan.as_data()),
        "epochs": recipe.epochs,
        "seed": plan.seed,
        "selection": {
            "rule": plan.select,
            "epoch": trained.epoch,
            "val_per_class": plan.as_data()["val_per_class"],
            "leaky": plan.select == "test",
        },
        "augmentation": list(recipe.augment),
        "preprocessing": {
            "mean": list(recipe.mean),
            "std": list(recipe.std),
            "view": asdict(recipe.test_view()),
        },
        "pretraining": _pretraining(recipe),
        "pretraining_overlap": overlap(recipe.pretraining, recipe.dataset),
        "curve": trained.curve,
        "session0": {},
        "files": {WEIGHTS: sha256_file(weights)},
        "environment": environment(
            device=machine.device, processes=machine.devices, precision=machine.precision, threads=machine.threads
        ),
    }
    write_card(target, card)
