"""Records on disk: their schema, and reading them without torch."""

import base64
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fscil_bench.errors import FscilError
from fscil_bench.files import read_json
from fscil_bench.metrics import DEFINITIONS, HEADLINE
from fscil_bench.protocols import load_protocol

SCHEMA = "fscil-bench/record/1"
STANDARD = "standard"
Kind = Literal["fscil", "fsl"]  # what was measured: sessions, or few-shot episodes
KINDS = ("fscil", "fsl", "failed")


def read_record(path: Path) -> dict[str, Any]:
    """A whole record of this schema; anything else is refused by name."""
    record = read_json(path, "record")
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise FscilError(f"{path} is not a record of schema {SCHEMA} (found {found}): measure it anew")
    try:
        _require_whole(record)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, FscilError) as error:
        raise FscilError(f"record {path} is damaged ({type(error).__name__}: {error}): measure it anew") from error
    return record


REQUIRED = {
    "method": (
        "name",
        "settings",
        "origins",
        "costly",
        "sampled",
        "privileges",
        "exemplars",
        "baseline",
        "code_sha256",
    ),
    "backbone": (
        "id",
        "bank_sha256",
        "pretraining",
        "overlap.kind",
        "selection.rule",
        "selection.leaky",
        "augmentation",
    ),
    "protocol": ("name", "sha256"),
    "environment": ("threads", "machine"),
}
REQUIRED_OF = {
    "fscil": {
        "cost": ("seconds.fit_base", "seconds.sessions", "trained_parameters", "peak_memory_mib"),
        "draws": ("names", "metrics.by_session", "metrics.paper"),
    },
    "fsl": {
        "cost": ("seconds.fit_base", "seconds.episodes", "peak_memory_mib"),
        "episodes": ("count", "ways", "queries", "seed"),
    },
    "failed": {},
}


def _require_whole(record: dict[str, Any]) -> None:
    """Everything that tables, comparisons and checks read must be there and have the right shape."""
    if record["kind"] not in KINDS:
        raise ValueError(f"unknown kind {record['kind']!r}")
    for part, keys in {**REQUIRED, **REQUIRED_OF[record["kind"]]}.items():
        for key in keys:
            _at(record[part], key)
    if record["method"]["settings"].keys() != record["method"]["origins"].keys():
        raise ValueError("settings and their origins differ")
    if not all(isinstance(name, str) for name in record["method"]["privileges"]):
        raise ValueError("privileges holds what is no name")
    if record["kind"] == "failed":
        record["error"]
    elif record["kind"] == "fsl":
        _require_counts(record)
    else:
        _require_numbers(record, load_protocol(record["protocol"]["name"]).sessions + 1)


def _require_counts(record: dict[str, Any]) -> None:
    load_protocol(record["protocol"]["name"])
    if not all(isinstance(name, str) for name in record["compared_with"]):
        raise ValueError("compared_with holds what is no name")
    if not record["shots"]:
        raise ValueError("no shots")
    count, most = record["episodes"]["count"], record["episodes"]["ways"] * record["episodes"]["queries"]
    for shots, values in record["shots"].items():
        right = unpack_counts(values["right"], most)
        if len(right) != count:
            raise ValueError(f"{shots} shots have {len(right)} counts for {count} episodes")
        if (right > most).any():
            raise ValueError(f"{shots} shots have an episode with more than {most} right answers")
        for part in ("mean", "sd", "low", "high", "n"):
            values["summary"][part]


def pack_counts(right: npt.NDArray[np.uint16], most: int) -> str:
    """Counts of at most `most` as text: one byte each (two, low byte first, if `most` needs them), in base64."""
    return base64.b64encode(right.astype(_count_type(most)).tobytes()).decode()


def unpack_counts(text: str, most: int) -> npt.NDArray[np.uint16]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=_count_type(most)).astype(np.uint16)


def _count_type(most: int) -> str:
    return "u1" if most < 2**8 else "<u2"


def _require_numbers(record: dict[str, Any], sessions: int) -> None:
    draws = len(record["draws"]["names"])
    metrics = record["draws"]["metrics"]
    tables = {metric: metrics["by_session"][metric] for metric in DEFINITIONS}
    tables |= {f"paper {metric}": values for metric, values in metrics["paper"].items()}
    for metric, lines in tables.items():
        if len(lines) != draws:
            raise ValueError(f"{metric} has {len(lines)} values, draws are {draws}")
        if any(len(line) != sessions for line in lines):
            raise ValueError(f"{metric} does not have {sessions} sessions in every draw")
        if not all(cell is None or isinstance(cell, float | int) for line in lines for cell in line):
            raise ValueError(f"{metric} holds what is no number")
    if record["standard"] is not None:
        for metric in DEFINITIONS:
            if len(record["standard"]["by_session"][metric]) != sessions:
                raise ValueError(f"standard {metric} does not have {sessions} sessions")
        for metric in HEADLINE:
            record["standard"]["headline"][metric]


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[key]
    return value
