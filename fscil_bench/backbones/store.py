"""Trained backbones on disk: a folder `<id>/` with card.json, weights.safetensors and bank-<dataset>.safetensors.

Shipped ones lie in the package (read-only), a user's own under `$FSCIL_BENCH_HOME/backbones/`. Large weights are in the
repository but not in what pip installs: methods need banks alone.
"""

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import platformdirs

from fscil_bench.errors import FscilError, UsageError, unknown_name
from fscil_bench.files import read_json, sha256_file, write_json
from fscil_bench.protocols import Protocol

SCHEMA = "fscil-bench/card/1"
CROSS_ENTROPY = "cross-entropy"
WEIGHTS = "weights.safetensors"
REQUIRED = {"dataset", "network", "recipe", "epochs", "selection", "augmentation", "session0", "files"}
REQUIRED |= {"pretraining", "pretraining_overlap"}


@dataclass(frozen=True)
class Backbone:
    """A trained backbone: where it lies and what its card says."""

    id: str  # the name of its folder
    folder: Path
    card: dict[str, Any]
    shipped: bool

    @property
    def objective(self) -> str:
        """What it was trained for; cards say so unless it was plain cross-entropy."""
        return str(self.card["recipe"].get("objective", CROSS_ENTROPY))

    def require_suits(self, method: str, objective: str | None) -> None:
        """Fail if a method needs another objective than this was trained for."""
        if not self.suits(objective):
            raise UsageError(
                f"method {method} needs a backbone trained for the objective {objective}; {self.id} was not: pass one "
                "with --backbone"
            )

    def suits(self, objective: str | None) -> bool:
        """Whether methods that need an objective (most need none) can run on it."""
        return objective in (None, self.objective)

    def checksum(self, name: str) -> str:
        """What the card says one of its files must be."""
        if name not in self.card["files"]:
            hint = "" if name == WEIGHTS else ": `fscil-bench backbone extract` makes banks"
            raise UsageError(f"backbone {self.id} has no {name}{hint}")
        return str(self.card["files"][name])

    def has(self, name: str) -> bool:
        """Whether one of its files is here, whole or not."""
        return (self.folder / name).is_file()

    def file(self, name: str) -> Path:
        """One of its files, after a check against the card's checksum."""
        path = self.folder / name
        wanted = self.checksum(name)
        if not self.has(name):
            raise FscilError(f"{path} is missing, though the card of {self.id} lists it: {where_to_get(name, wanted)}")
        if sha256_file(path) != wanted:
            raise FscilError(f"{path} is damaged (its sha256 is not the card's): restore it or make it anew")
        return path


def bank_name(dataset: str) -> str:
    return f"bank-{dataset}.safetensors"


def home() -> Path:
    """Where a user's backbones and trainings live."""
    named = os.environ.get("FSCIL_BENCH_HOME")
    return Path(named) if named else Path(platformdirs.user_data_dir("fscil-bench"))


def list_backbones(problems: list[str] | None = None) -> list[Backbone]:
    """The shipped backbones, then the user's own, by id; one whose card cannot be read is left out, and said why."""
    found = []
    for root, shipped in ((_shipped_root(), True), (home() / "backbones", False)):
        for folder in sorted(root.iterdir()) if root.is_dir() else []:
            if (folder / "card.json").is_file():
                try:
                    found.append(open_backbone(folder, shipped=shipped))
                except FscilError as error:
                    if problems is not None:
                        problems.append(str(error))
    return found


def find_backbone(name: str) -> Backbone:
    """The backbone with the id `name`, or in the folder `name`."""
    if (Path(name) / "card.json").is_file():
        return open_backbone(Path(name), shipped=Path(name).resolve().is_relative_to(_shipped_root().resolve()))
    by_id = {backbone.id: backbone for backbone in reversed(list_backbones())}  # a shipped one before a user's own
    if name not in by_id:
        raise unknown_name("backbone", name, by_id, "`fscil-bench backbone train` makes one; a folder works too")
    return by_id[name]


def default_backbone(protocol: Protocol, objective: str | None) -> Backbone:
    """What a method takes if no backbone is named: the dataset's, or the first trained for its objective."""
    own = [backbone for backbone in list_backbones() if backbone.card["dataset"] == protocol.name]
    if objective is None:
        fitting = [backbone for backbone in own if backbone.id == protocol.default_backbone]
    else:
        fitting = [backbone for backbone in own if backbone.objective == objective]
    if fitting:
        return fitting[0]
    train = f"`fscil-bench backbone train --dataset {protocol.name}"
    if objective is not None:
        raise UsageError(
            f"no backbone of {protocol.name} was trained for the objective {objective}: {train} --recipe {objective}` "
            "makes one, or name one with --backbone"
        )
    if own:
        others = ", ".join(backbone.id for backbone in own)
        raise UsageError(
            f"the default backbone {protocol.default_backbone} is not here: train it with {train}`, or name another "
            f"with --backbone: {others}"
        )
    raise UsageError(f"no backbone of {protocol.name} is here: train one with {train}`, or name one with --backbone")


def open_backbone(folder: Path, *, shipped: bool = False) -> Backbone:
    card = read_json(folder / "card.json", "backbone card")
    if not isinstance(card, dict) or card.get("schema") != SCHEMA:
        raise FscilError(f"{folder / 'card.json'} is not a backbone card of schema {SCHEMA}")
    if missing := REQUIRED - card.keys():
        raise FscilError(f"{folder / 'card.json'} is damaged (it lacks {', '.join(sorted(missing))})")
    if odd := [name for name in card["files"] if Path(name).name != name]:
        raise FscilError(f"{folder / 'card.json'} is damaged (it lists a file outside of the folder: {odd[0]})")
    return Backbone(folder.resolve().name, folder, card, shipped)


def write_card(folder: Path, card: dict[str, Any]) -> None:
    write_json(folder / "card.json", card)


def where_to_get(name: str, sha256: str) -> str:
    """Where to get a missing file: the repository has all of a shipped backbone, or of a copy of one."""
    for backbone in list_backbones():
        if backbone.shipped and backbone.card["files"].get(name) == sha256:
            return (
                f"get the file with sha256 {sha256} from folder fscil_bench/artifacts/{backbone.id} of the project's "
                "repository and put it there"
            )
    return f"restore it (sha256 {sha256}) or make it anew"


def _shipped_root() -> Path:
    return Path(str(resources.files("fscil_bench.artifacts")))
