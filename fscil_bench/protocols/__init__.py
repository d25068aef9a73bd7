"""Protocols: what is compared. Which classes form the base, which come in each session, with which images.

A protocol is a JSON file in data/; the sha256 of its canonical form is in data/SHA256SUMS and in every record.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from fscil_bench.errors import FscilError, unknown_name
from fscil_bench.files import sha256_json

SCHEMA = "fscil-bench/protocol/1"
MANY, FEW = 100, 10  # random draws of a full row: of cheap methods, of costly ones
MANY_EPISODES, FEW_EPISODES = 10_000, 2_000  # the same of few-shot episodes


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Training images that a protocol tests on: so many of each class, chosen by a seed (`draws.roles` says how)."""

    per_class: int
    seed: int

    def __post_init__(self) -> None:
        if self.per_class < 1 or self.seed < 0:
            raise FscilError(f"held_out needs at least one image a class and a seed from 0, not {self}")


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The sessions of a benchmark: `base` classes, then `sessions` times `way` new ones with `shot` images each.

    A protocol without sessions is for few-shot episodes alone: its new classes are those after base and validation.
    """

    name: str
    dataset: str
    title: str
    source: str
    classes: tuple[str, ...]  # in the order they arrive
    base: int
    way: int
    shot: int
    sessions: int  # after the base session
    test: str
    default_backbone: str
    support_key: str  # what the standard draw lists: "id", "official-train-index" of the dataset's archive, or "none"
    support: tuple[tuple[Any, ...], ...]  # the standard draw: for every new class its images; empty if there is none
    held_out: HeldOut | None = None  # tests on these training images; None: on the dataset's test images
    sha256: str = field(repr=False)
    validation: int = 0  # classes after the base that are set aside for choosing settings: never donors, never tested

    def __post_init__(self) -> None:
        if self.sessions and (self.validation or self.base + self.way * self.sessions != len(self.classes)):
            raise FscilError(f"protocol {self.name}: {len(self.classes)} classes do not fill its sessions")

    @property
    def seen(self) -> tuple[int, ...]:
        """The number of classes seen after session 0, 1, ..."""
        return tuple(self.base + t * self.way for t in range(self.sessions + 1))

    @property
    def is_validation(self) -> bool:
        """Whether settings may be chosen by it: it looks at no test image of the dataset."""
        return self.held_out is not None

    @property
    def new_classes(self) -> range:
        return range(self.base + self.validation, len(self.classes))


def full_episodes(*, costly: bool) -> int:
    """How many few-shot episodes a full row has."""
    return FEW_EPISODES if costly else MANY_EPISODES


def protocol_names() -> list[str]:
    return sorted(_checksums())


@cache
def load_protocol(name: str) -> Protocol:
    if name not in _checksums():
        raise unknown_name("dataset", name, protocol_names())
    text = (_folder() / f"{name}.json").read_text()
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FscilError(f"protocol file {name}.json is damaged ({error}): install fscil-bench again") from error
    if sha256_json(data) != _checksums()[name]:
        raise FscilError(
            f"protocol file {name}.json is not the one released (checksum differs): install fscil-bench again"
        )
    return parse_protocol(data)


def parse_protocol(data: dict[str, Any]) -> Protocol:
    if data.get("schema") != SCHEMA:
        raise FscilError(f"protocol has schema {data.get('schema')!r}, expected {SCHEMA!r}")
    values = {k: v for k, v in data.items() if k != "schema"}
    values["classes"] = tuple(data["classes"])
    values["support"] = tuple(tuple(images) for images in data["support"])
    if "held_out" in data:
        values["held_out"] = HeldOut(**data["held_out"])
    return Protocol(**values, sha256=sha256_json(data))


@cache
def _checksums() -> dict[str, str]:
    lines = (_folder() / "SHA256SUMS").read_text().splitlines()
    return {file.removesuffix(".json"): digest for digest, file in (line.split() for line in lines)}


def _folder() -> Any:
    return resources.files("fscil_bench.protocols") / "data"
