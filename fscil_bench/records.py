"""Records on disk: their schema, and reading them without torch."""

from pathlib import Path
from typing import Any

from fscil_bench.errors import FscilError
from fscil_bench.files import read_json
from fscil_bench.metrics import DEFINITIONS
from fscil_bench.protocols import load_protocol

SCHEMA = "fscil-bench/record/1"
STANDARD = "standard"
KINDS = ("fscil", "failed")


def read_record(path: Path) -> dict[str, Any]:
    """A whole record of this schema; anything else is refused by name."""
    record = read_json(path, "record")
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise FscilError(f"{path} is not a record of schema {SCHEMA} (found {found}): measure it anew")
    try:
        _require_whole(record)
    except (KeyError, TypeError, ValueError) as error:
        raise FscilError(f"record {path} is damaged ({type(error).__name__}: {error}): measure it anew") from error
    return record


def _require_whole(record: dict[str, Any]) -> None:
    if record["kind"] not in KINDS:
        raise ValueError(f"unknown kind {record['kind']!r}")
    method = record["method"]
    if method["settings"].keys() != method["origins"].keys():
        raise ValueError("settings and their origins differ")
    for key in ("name", "costly", "sampled", "privileges", "exemplars", "baseline", "code_sha256"):
        method[key]
    for key in ("id", "bank_sha256", "overlap", "selection", "pretraining"):
        record["backbone"][key]
    for key in ("name", "sha256"):
        record["protocol"][key]
    if record["kind"] == "failed":
        record["error"]
        return
    for key in ("seconds", "trained_parameters", "peak_memory_mib"):
        record["cost"][key]
    record["environment"], record["standard"]
    sessions = load_protocol(record["protocol"]["name"]).sessions + 1
    names, by_session = record["draws"]["names"], record["draws"]["metrics"]["by_session"]
    for metric in DEFINITIONS:
        if len(by_session[metric]) != len(names):
            raise ValueError(f"{metric} has {len(by_session[metric])} values for {len(names)} draws")
        lines = [*by_session[metric], *([record["standard"]["by_session"][metric]] if record["standard"] else [])]
        if any(len(line) != sessions for line in lines):
            raise ValueError(f"{metric} does not have {sessions} sessions in every draw")
