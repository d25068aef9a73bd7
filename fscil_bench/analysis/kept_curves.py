"""Offset curves on disk, one file a method with its settings: draws that take minutes each are not measured twice."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fscil_bench.analysis import offset
from fscil_bench.analysis.offset import Curves, trace
from fscil_bench.code import code_sha256, modules_sha256
from fscil_bench.evaluate import Arena
from fscil_bench.files import plain, sha256_json, write_atomically
from fscil_bench.progress import note
from fscil_bench.protocols.draws import Draw
from fscil_bench.registry import Configured

SCHEMA = "fscil-bench/curves/1"


def curves_of(
    arena: Arena, configured: Configured, draws: Sequence[Draw], folder: Path, advance: Callable[[int], None]
) -> Curves:
    """A method's curves over these draws; those of costly methods are taken from `folder`, and kept there."""
    if not configured.method.costly:
        return trace(configured.method, arena.split, draws, advance)
    names = [draw.name for draw in draws]
    store = _Store.of(folder, arena, configured)
    found = store.find()
    missing = [draw for draw in draws if draw.name not in found.draws] if found else draws
    if found and len(missing) < len(draws):
        note(f"{configured.label}: {len(draws) - len(missing)} of {len(draws)} draws were on disk")
        advance(len(draws) - len(missing))
    if missing:
        known = found
        whole = trace(
            configured.method,
            arena.split,
            missing,
            advance,
            lambda fresh: store.add(known.joined(fresh) if known else fresh),
        )
        found = known.joined(whole) if known else whole
    assert found is not None  # there is a draw at least
    return found.of(names)


@dataclass(frozen=True)
class _Store:
    """The file of one method with its settings."""

    path: Path
    facts: dict[str, Any]  # what its numbers follow from, beside the draws

    @classmethod
    def of(cls, folder: Path, arena: Arena, configured: Configured) -> "_Store":
        settings = plain(configured.settings)
        facts = {
            "schema": SCHEMA,
            "method": configured.name,
            "settings": settings,
            "code_sha256": code_sha256(configured.method),
            "curves_sha256": modules_sha256(sys.modules[offset.__name__]),
            "bank_sha256": arena.split.bank.sha256,
            "protocol_sha256": arena.protocol.sha256,
        }
        return cls(folder / f"{configured.name}-{sha256_json(settings)[:8]}.safetensors", facts)

    def find(self) -> Curves | None:
        """The curves on disk, if they follow from the same inputs."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                about = json.loads(file.metadata()["fscil-bench"])
                if {key: about[key] for key in self.facts} != self.facts:
                    return None
                curves = Curves(tuple(about["draws"]), file.get_tensor("base"), file.get_tensor("new"))
            if not len(curves.base) == len(curves.new) == len(curves.draws):
                raise ValueError("draws and curves differ in their count")
            return curves
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            note(f"Measured anew: {self.path.name} holds no whole curves ({error})")
            return None

    def add(self, curves: Curves) -> None:
        tensors = {"base": curves.base.contiguous(), "new": curves.new.contiguous()}
        metadata = {"fscil-bench": json.dumps({**self.facts, "draws": curves.draws})}
        write_atomically(self.path, lambda temporary: save_file(tensors, temporary, metadata))
