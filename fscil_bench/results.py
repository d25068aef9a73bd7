"""The record of a run: one JSON a (method, settings, protocol, backbone), every draw inside, predictions beside it."""

import json
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fscil_bench.backbones.store import Backbone
from fscil_bench.code import code_sha256
from fscil_bench.environment import environment
from fscil_bench.errors import FscilError
from fscil_bench.files import json_bytes, plain, sha256_json, write_json, write_together
from fscil_bench.metrics import Metrics, Summary, measure, measure_as_papers, summarise
from fscil_bench.protocols import Protocol
from fscil_bench.protocols.draws import Split
from fscil_bench.records import SCHEMA, STANDARD, Kind
from fscil_bench.registry import Configured
from fscil_bench.runner import Walk


@dataclass(frozen=True)
class Result:
    """A method's walk through a protocol, measured."""

    configured: Configured
    backbone: Backbone
    split: Split
    walk: Walk
    metrics: Metrics
    paper_metrics: Metrics

    @property
    def random(self) -> list[int]:
        """Positions of the random draws."""
        return [i for i, name in enumerate(self.walk.draws) if name != STANDARD]

    @property
    def standard(self) -> int | None:
        return self.walk.draws.index(STANDARD) if STANDARD in self.walk.draws else None

    def summaries(self) -> dict[str, Summary]:
        """Headline numbers over the random draws; none without any."""
        if not self.random:
            return {}
        return {key: summarise(values[self.random]) for key, values in self.metrics.headline.items()}


def score(configured: Configured, backbone: Backbone, split: Split, walk: Walk) -> Result:
    protocol = split.protocol
    targets = split.targets[split.test_rows]
    seen = protocol.seen[: walk.predictions.shape[1]]
    learned = backbone.card["session0"].get(protocol.name, {}).get("learned_head")
    return Result(
        configured,
        backbone,
        split,
        walk,
        measure(walk.predictions, targets, seen, protocol.base),
        measure_as_papers(walk.predictions, targets, seen, protocol.base, learned),
    )


def record_path(
    root: Path, configured: Configured, protocol: Protocol, backbone: Backbone, kind: Kind = "fscil"
) -> Path:
    """`<root>/<protocol>/<backbone>/<method>[-8 hex of other settings].<kind>.json`."""
    other = f"-{sha256_json(configured.changed)[:8]}" if configured.changed else ""
    return root / protocol.name / backbone.id / f"{configured.name}{other}.{kind}.json"


def as_record(result: Result) -> dict[str, Any]:
    """The record as JSON data."""
    standard, trained = result.standard, result.walk.trained_parameters
    return {
        **inputs("fscil", result.configured, result.backbone, result.split),
        "standard": _standard_metrics(result, standard) if standard is not None else None,
        "draws": {
            "names": [result.walk.draws[i] for i in result.random],
            "metrics": {
                "by_session": plain({key: v[result.random] for key, v in result.metrics.by_session.items()}),
                "paper": plain({key: v[result.random] for key, v in result.paper_metrics.by_session.items()}),
            },
        },
        "summary": {key: plain(asdict(summary)) for key, summary in result.summaries().items()},
        "cost": {"seconds": result.walk.seconds, "trained_parameters": trained, "peak_memory_mib": peak_memory()},
        "environment": environment(device="cpu"),
    }


def inputs(kind: Kind, configured: Configured, backbone: Backbone, split: Split) -> dict[str, Any]:
    """What a record's numbers follow from."""
    method, card = configured.method, backbone.card
    return {
        "schema": SCHEMA,
        "kind": kind,
        "method": {
            "name": configured.name,
            "version": configured.version,
            "settings": plain(configured.settings),
            "origins": configured.origins,
            "exemplars": method.exemplars,
            "privileges": list(method.privileges),
            "deviations": list(configured.deviations),
            "baseline": configured.baseline,
            "sampled": method.sampled,
            "costly": kind in method.costly,
            "code_sha256": code_sha256(method, kind),
        },
        "protocol": {"name": split.protocol.name, "sha256": split.protocol.sha256},
        "backbone": {
            "id": backbone.id,
            "bank_sha256": split.bank.sha256,
            "pretraining": card["pretraining"],
            "overlap": card["pretraining_overlap"],
            "selection": card["selection"],
            "augmentation": card["augmentation"],
        },
    }


def store(path: Path, result: Result) -> None:
    """Put the record at `path`, with the predictions of one draw beside it, in place of whatever was there."""
    position = result.standard if result.standard is not None else 0
    predictions = torch.from_numpy(result.walk.predictions[position].copy())
    about = {
        "draw": result.walk.draws[position],
        "rows": "sessions, from 0",
        "columns": "test images in the order of protocol class, then id; -1 before their class is seen",
        "bank_sha256": result.split.bank.sha256,
    }
    metadata = {"fscil-bench": json.dumps(about)}  # one entry: the order of several is not the same from run to run
    record = json_bytes(as_record(result))
    write_together(
        {
            predictions_path(path): lambda temporary: save_file({"predictions": predictions}, temporary, metadata),
            path: lambda temporary: temporary.write_bytes(record),
        }
    )
    failure_path(path).unlink(missing_ok=True)


def store_failure(path: Path, configured: Configured, backbone: Backbone, split: Split, error: str) -> None:
    """Put a record that says why the method did not get through, in place of the one at `path`."""
    for place in (Path.cwd(), Path.home()):  # records name no paths of a machine
        error = error.replace(str(place), "...")
    kind: Kind = "fsl" if path.name.endswith(".fsl.json") else "fscil"
    facts = {"error": " ".join(error.split())[:300], "environment": environment(device="cpu")}
    write_json(failure_path(path), {**inputs(kind, configured, backbone, split), "kind": "failed", "of": kind, **facts})
    path.unlink(missing_ok=True)
    predictions_path(path).unlink(missing_ok=True)


def read_predictions(record: Path) -> tuple[str, npt.NDArray[np.int16]]:
    """The draw, and the predictions [sessions, test images], stored beside a record."""
    path = predictions_path(record)
    try:
        with safe_open(path, framework="np") as file:
            return json.loads(file.metadata()["fscil-bench"])["draw"], file.get_tensor("predictions")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise FscilError(f"predictions {path.name} cannot be read ({error})") from error


def predictions_path(record: Path) -> Path:
    return record.with_suffix(".predictions.safetensors")


def failure_path(record: Path) -> Path:
    """`<method>.failed.json` beside it; for few-shot episodes `<method>.fsl.failed.json`."""
    return record.with_name(record.name.replace(".fscil.json", ".json").replace(".json", ".failed.json"))


def lock_path(record: Path) -> Path:
    return record.with_suffix(".lock")


def _standard_metrics(result: Result, draw: int) -> dict[str, Any]:
    groups = {
        "by_session": result.metrics.by_session,
        "headline": result.metrics.headline,
        "paper": result.paper_metrics.by_session,
    }
    return {group: plain({key: values[draw] for key, values in metrics.items()}) for group, metrics in groups.items()}


def peak_memory() -> float:
    """MiB of resident memory this process has held at most."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
