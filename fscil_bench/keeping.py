"""What becomes of the record that is there already: a short trial does not take the place of a full row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fscil_bench.errors import FscilError
from fscil_bench.markdown import counted
from fscil_bench.progress import note
from fscil_bench.records import STANDARD, read_record

Record = dict[str, Any]


def store_unless_fuller(path: Path, record: Record, store: Callable[[], None]) -> None:
    """Store a record at `path`, unless the one there has the same inputs and holds all of it, and more.

    A note says so, or what gets lost. A file that cannot be read, damaged or of another schema, is set aside.
    """
    if path.is_file():
        try:
            old = read_record(path)
        except FscilError as error:
            aside = path.with_name(f"{path.name}.old")
            path.replace(aside)
            note(f"Note: {error}. This run does so; the old file is now {aside}")
        else:
            had, has, same = _measured(old), _measured(record), _inputs(old) == _inputs(record)
            if same and has < had:
                note(f"Note: {path} is left as it is: it holds these {_amount(record)} among its {_amount(old)}")
                return
            if had - has:
                why = "" if same else " (by other code or of another bank)"
                note(f"Note: {path} held {_amount(old)}{why}; it now holds {_amount(record)} instead")
    store()


def _inputs(record: Record) -> list[Any]:
    """What decides a record's numbers, but for draws and episodes."""
    method = record["method"]
    of_method = [method[key] for key in ("name", "settings", "code_sha256")]
    return [*of_method, record["protocol"]["sha256"], record["backbone"]["bank_sha256"]]


def _measured(record: Record) -> set[tuple[object, ...]]:
    """Every single draw, or every single episode."""
    if record["kind"] == "fscil":
        return {(name,) for name in _draws(record)}
    plan = record["episodes"]
    conditions = tuple(plan[key] for key in ("ways", "queries", "seed"))
    return {(*conditions, shots, number) for shots in record["shots"] for number in range(plan["count"])}


def _amount(record: Record) -> str:
    if record["kind"] == "fscil":
        return counted(len(_draws(record)), "draw")
    plan = record["episodes"]
    kinds = ", ".join(f"{plan['ways']}w{shots}s" for shots in record["shots"])
    return f"{counted(plan['count'], 'episode')} of {kinds} (seed {plan['seed']})"


def _draws(record: Record) -> list[str]:
    return [*([STANDARD] if record["standard"] is not None else ()), *record["draws"]["names"]]
