"""Records on disk: their schema, and reading them without torch."""

from pathlib import Path
from typing import Any

from fscil_bench.errors import FscilError
from fscil_bench.files import read_json

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
    draws = record["draws"]
    for group in ("by_session", "headline"):
        for metric, values in draws["metrics"][group].items():
            if len(values) != len(draws["names"]):
                raise ValueError(f"{metric} has {len(values)} values for {len(draws['names'])} draws")
