"""Measure rows anew: every method, in every setting that deserves a row, on every backbone with a bank."""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fscil_bench.errors import FscilError
from fscil_bench.files import write_json
from fscil_bench.records import read_record

IGNORED = ("cost", "environment")  # differ from machine to machine and run to run


@dataclass(frozen=True)
class Task:
    """One row to measure."""

    method: str
    dataset: str
    backbone: str
    settings: Mapping[str, str] = field(default_factory=dict)
    draws: tuple[str, ...] | None = None  # None: those of a complete row


def tasks_for(methods: Iterable[str], backbones: Iterable[Any]) -> list[Task]:
    """Every row that the methods have on the backbones' own datasets: defaults, and the declared variants."""
    from fscil_bench.registry import load_method

    found = []
    for name in methods:
        kind = load_method(name)
        for backbone in backbones:
            if kind.recipe is not None and backbone.card["recipe"]["name"] != kind.recipe:
                continue
            for variant in ({}, *kind.variants):
                settings = {key: str(value) for key, value in variant.items()}
                found.append(Task(name, backbone.card["dataset"], str(backbone.folder), settings))
    return found


def measure_rows(
    tasks: list[Task],
    root: Path,
    done: Callable[[Task, str], None] = lambda task, outcome: None,
    workers: int | None = None,
) -> None:
    """Measure the tasks in parallel processes and store what changed under `root`; `done` hears of each."""
    count = max(1, min(workers or os.cpu_count() or 1, len(tasks)))
    if count == 1:
        for task in tasks:
            done(task, measure_row(task, root))
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        futures = {pool.submit(measure_row, task, root): task for task in tasks}
        for future in as_completed(futures):
            done(futures[future], future.result())


def measure_row(task: Task, root: Path) -> str:
    """Measure one row; store it unless its inputs and numbers are those on record. Says what happened."""
    from fscil_bench.evaluate import Arena
    from fscil_bench.registry import configure
    from fscil_bench.results import as_record, failed_record, record_path, write_predictions

    arena = Arena(task.dataset, task.backbone)
    configured = configure(task.method, task.dataset, task.settings)
    path = record_path(root, configured, arena.protocol, arena.backbone)
    draws, _ = arena.draws(task.draws or (), None, costly=configured.method.costly)
    try:
        result = arena.run(configured, draws)
    except Exception as error:
        record = failed_record(configured, arena.backbone, arena.split, f"{type(error).__name__}: {error}")
        path.unlink(missing_ok=True)
        write_json(path.with_name(path.name.replace(".fscil.json", ".failed.json")), record)
        return f"failed: {error}"
    record = as_record(result)
    if path.is_file() and same_inputs_and_numbers(_read_or_none(path), record):
        return "unchanged"
    write_predictions(path, result)
    write_json(path, record)
    path.with_name(path.name.replace(".fscil.json", ".failed.json")).unlink(missing_ok=True)
    return "measured"


def same_inputs_and_numbers(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    if old is None:
        return False
    return {k: v for k, v in old.items() if k not in IGNORED} == {k: v for k, v in new.items() if k not in IGNORED}


def _read_or_none(path: Path) -> dict[str, Any] | None:
    """The record, or None if it is damaged and must be written anew in any case."""
    try:
        return read_record(path)
    except FscilError:
        return None


def _one_thread() -> None:
    """Processes share the cores; threads within them would only get into each other's way."""
    import torch

    torch.set_num_threads(1)
