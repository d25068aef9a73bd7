"""From weights to a feature bank: every image once, with test preprocessing."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fscil_bench.backbones.machine import Machine
from fscil_bench.backbones.networks import make_network
from fscil_bench.backbones.store import WEIGHTS, Backbone, bank_name, open_backbone, write_card
from fscil_bench.backbones.training import EVAL_BATCH, Normalise
from fscil_bench.banks import Bank, decode, encode, open_bank, require_storage, write_bank
from fscil_bench.datasets.images import ImageSet, View
from fscil_bench.errors import FscilError
from fscil_bench.files import sha256_file
from fscil_bench.method import Base, cosine
from fscil_bench.progress import progress
from fscil_bench.protocols import Protocol, load_protocol
from fscil_bench.protocols.draws import Split, roles


def extract(backbone: Backbone, images: ImageSet, machine: Machine, storage: str = "f16") -> Backbone:
    """Make the backbone's bank of `images` and enter it, with the accuracies of session 0, in the card."""
    require_storage(storage)
    card = backbone.card
    protocol = session0_protocol(card, images.dataset)
    if protocol.held_out is not None:  # a bank for validation holds no test image of the dataset
        used = roles(protocol, images)
        images = images.take(np.concatenate((used.train, used.test)))
    weights = {name: tensor.float() for name, tensor in load_file(backbone.file(WEIGHTS)).items()}
    features = _features(weights, card, images, machine)
    exact = Bank(
        dataset=images.dataset,
        classes=images.classes,
        features=features,
        labels=images.labels,
        is_test=images.is_test,
        ids=images.ids,
        head=_head(weights, card),
        metadata={},
    )
    session0 = session0_accuracy(exact, protocol)
    stored = replace(exact, features=decode(encode(features, storage)))
    if not stored.features.isfinite().all():
        raise FscilError(f"features of {backbone.id} do not fit into {storage}: choose --storage f32")
    effect = {key: value - session0[key] for key, value in session0_accuracy(stored, protocol).items()}
    about = {
        "backbone": backbone.id,
        "weights_sha256": card["files"][WEIGHTS],
        "preprocessing": card["preprocessing"],
        "storage": {"type": storage, "session0_change": effect},
    }
    path = backbone.folder / bank_name(images.dataset)
    write_bank(path, replace(exact, metadata=about), storage)
    files = {**card["files"], path.name: sha256_file(path)}
    measured = {**card["session0"], protocol.name: session0}
    write_card(backbone.folder, {**card, "files": files, "session0": measured})
    return open_backbone(backbone.folder)


def store_anew(backbone: Backbone, dataset: str, storage: str, folder: Path, effects: Mapping[str, Any]) -> Backbone:
    """A copy of the backbone in `folder`, its bank in another storage with the measured `effects` in it."""
    bank = open_bank(backbone, dataset)
    protocol = session0_protocol(backbone.card, dataset)
    rounded = replace(bank, features=decode(encode(bank.features, storage)))
    before, after = session0_accuracy(bank, protocol), session0_accuracy(rounded, protocol)
    change = {key: value - before[key] for key, value in after.items()}
    about = {"type": storage, "session0_change": change, "last_session_change": dict(effects)}
    path = folder / bank_name(dataset)
    write_bank(path, replace(bank, metadata={**bank.metadata, "storage": about}), storage)
    shutil.copyfile(backbone.file(WEIGHTS), folder / WEIGHTS)
    files = {WEIGHTS: backbone.checksum(WEIGHTS), path.name: sha256_file(path)}
    write_card(folder, {**backbone.card, "files": files})
    return open_backbone(folder)


def _head(weights: dict[str, Tensor], card: dict[str, Any]) -> dict[str, Tensor]:
    """The learned head, with its virtual rows apart if it has some; none if nothing was trained."""
    if "head.weight" not in weights:
        return {}
    rows = weights["head.weight"]
    n_virtual = len(weights.get("reserved", ()))
    head = {"weight": rows[: len(rows) - n_virtual], "scale": torch.tensor(float(card["recipe"]["scale"]))}
    return {**head, "virtual": rows[-n_virtual:]} if n_virtual else head


def session0_protocol(card: dict[str, Any], dataset: str) -> Protocol:
    """The protocol that a bank of `dataset` is measured on: the one trained for, if it is made of those images."""
    own = load_protocol(card["dataset"])
    return own if own.dataset == dataset else load_protocol(dataset)


def session0_accuracy(bank: Bank, protocol: Protocol) -> dict[str, float]:
    """Percent of base test images that the class means, and the learned head if any, get right among base classes."""
    split = Split(protocol, bank)
    base = protocol.base
    rows = split.test_rows[split.targets[split.test_rows] < base]
    targets = torch.from_numpy(split.targets[rows])
    queries = bank.features[torch.from_numpy(rows)].double()
    fit = Base(
        bank.features[torch.from_numpy(split.base_rows)].double(),
        torch.from_numpy(split.targets[split.base_rows]),
        base,
    )

    def accuracy(prototypes: Tensor) -> float:
        return 100 * float((cosine(queries, prototypes).argmax(dim=-1) == targets).double().mean())

    learned = {"learned_head": accuracy(bank.head["weight"].double())} if "weight" in bank.head else {}
    return {**learned, "prototypes": accuracy(fit.means())}


@torch.inference_mode()
def _features(weights: dict[str, Tensor], card: dict[str, Any], images: ImageSet, machine: Machine) -> Tensor:
    if machine.threads is not None:
        torch.set_num_threads(machine.threads)
    fabric = replace(machine, devices=1).fabric()
    network = make_network(card["network"])
    network.load_state_dict({k.removeprefix("network."): v for k, v in weights.items() if k.startswith("network.")})
    network = network.to(fabric.device).eval()
    normalise = Normalise(card["preprocessing"]["mean"], card["preprocessing"]["std"], fabric.device)
    view = View(**card["preprocessing"]["view"])
    parts = []
    with progress() as bar:
        task = bar.add_task(f"features of {images.dataset}", total=len(images.ids))
        for rows in np.array_split(np.arange(len(images.ids)), -(-len(images.ids) // EVAL_BATCH)):
            parts.append(network(normalise(images.read(rows, view).pixels.to(fabric.device))).float().cpu())
            bar.advance(task, len(rows))
    return torch.cat(parts)
