"""Feature banks: every image of a dataset through a backbone once, stored with what is needed to run methods on it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fscil_bench.backbones.store import Backbone, bank_name
from fscil_bench.errors import FscilError, unknown_name
from fscil_bench.files import write_atomically
from fscil_bench.packing import pack, unpack

SCHEMA = "fscil-bench/bank/1"
STORAGE = ("f16", "f32", "int8", "int8:STEPS", "int16:STEPS")  # of features on disk
STEPS = {"int8": 255, "int16": 65535}  # at the most; for int8 also unless it names fewer
PACKED = "features.packed."  # what the names of an int16 bank's streams begin with


@dataclass(frozen=True)
class Bank:
    """Features of all images of a dataset, train before test, then by class, then by id."""

    dataset: str
    classes: tuple[str, ...]
    features: Tensor  # [N, d], float16 or float32
    labels: npt.NDArray[np.int64]  # [N], index into classes
    is_test: npt.NDArray[np.bool_]  # [N]
    ids: tuple[str, ...]  # [N]
    head: Mapping[str, Tensor]  # what the recipe's own inference needs
    metadata: Mapping[str, Any]  # backbone id, weights sha256, preprocessing, effect of the storage type
    sha256: str = field(default="", repr=False)


def require_storage(storage: str) -> None:
    """Fail if there is no such storage of features."""
    steps = re.fullmatch(r"(int8|int16):(\d{1,5})", storage)
    if storage not in ("f16", "f32", "int8") and not (steps and 1 <= int(steps[2]) <= STEPS[steps[1]]):
        raise unknown_name("storage type", storage, STORAGE)


def encode(features: Tensor, storage: str) -> dict[str, Tensor]:
    """Features as tensors to store.

    int8 and int16 count steps between the least and the greatest value of every dimension, on the scale of square
    roots: averages of rectified maps crowd near zero, and some methods take their root. int16 packs the counts.
    """
    require_storage(storage)
    kind, _, named = storage.partition(":")
    if kind not in STEPS:
        return {"features": features.to({"f16": torch.float16, "f32": torch.float32}[kind]).contiguous()}
    steps = int(named or STEPS[kind])
    roots = features.float().abs().sqrt() * features.sign()
    low = roots.amin(dim=0).clamp(max=0)  # zero stays zero where nothing is negative
    step = ((roots.amax(dim=0) - low) / steps).clamp(min=torch.finfo(torch.float32).tiny)
    counts = ((roots - low) / step).round()
    scale = {"features.low": low, "features.step": step}
    if kind == "int8":
        return {"features": counts.to(torch.uint8).contiguous(), **scale}
    streams = pack(counts.to(torch.int32).numpy().astype(np.uint16), steps)
    return {**{PACKED + name: torch.from_numpy(stream) for name, stream in streams.items()}, **scale}


def decode(tensors: Mapping[str, Tensor]) -> Tensor:
    """The features that `encode` stored."""
    packed = {key.removeprefix(PACKED): t.numpy() for key, t in tensors.items() if key.startswith(PACKED)}
    stored = torch.from_numpy(unpack(packed)) if packed else tensors["features"]
    if stored.is_floating_point():
        return stored
    roots = stored.float().mul_(tensors["features.step"]).add_(tensors["features.low"])
    return roots.mul_(roots.abs())


def write_bank(path: Path, bank: Bank, storage: str = "f16") -> None:
    if any("\n" in i for i in bank.ids):
        raise FscilError("an image name contains a line break: rename it")
    tensors = {
        **encode(bank.features, storage),
        "labels": torch.from_numpy(bank.labels.astype(np.int16)),
        "is_test": torch.from_numpy(bank.is_test.astype(np.uint8)),
        "ids": torch.frombuffer(bytearray("\n".join(bank.ids).encode()), dtype=torch.uint8),
        **{f"head.{key}": value.contiguous() for key, value in bank.head.items()},
    }
    about = {"schema": SCHEMA, "dataset": bank.dataset, "classes": list(bank.classes), **bank.metadata}
    metadata = {"fscil-bench": json.dumps(about, sort_keys=True)}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def open_bank(backbone: Backbone, dataset: str) -> Bank:
    """The backbone's bank of `dataset`, checked against the card's checksum."""
    path = backbone.file(bank_name(dataset))
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()["fscil-bench"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if about.pop("schema") != SCHEMA:
            raise FscilError(
                f"{path} is not a bank of schema {SCHEMA}: make it anew with `fscil-bench backbone extract`"
            )
        return Bank(
            dataset=about.pop("dataset"),
            classes=tuple(about.pop("classes")),
            features=decode(tensors),
            labels=tensors["labels"].numpy().astype(np.int64),
            is_test=tensors["is_test"].numpy().astype(bool),
            ids=tuple(tensors["ids"].numpy().tobytes().decode().split("\n")),
            head={key.removeprefix("head."): t for key, t in tensors.items() if key.startswith("head.")},
            metadata=about,
            sha256=backbone.card["files"][bank_name(dataset)],
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise FscilError(
            f"{path} is not a feature bank ({error}): make it anew with `fscil-bench backbone extract`"
        ) from error
