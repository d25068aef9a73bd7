"""Measure rows anew: every method, in every setting that deserves a row, on every backbone with a bank."""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fscil_bench.backbones.store import Backbone
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import exclusive
from fscil_bench.records import read_record

IGNORED = ("cost", "environment")  # differ from machine to machine and run to run


@dataclass(frozen=True)
class Task:
    """One row to measure."""

    method: str
    dataset: str
    backbone: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = "".join(f" {key}={value}" for key, value in self.settings.items())
        return f"{self.method}{settings} on {self.dataset}, {Path(self.backbone).name}"


def tasks_for(methods: Iterable[str], backbones: Iterable[Backbone]) -> list[Task]:
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
    tasks: Sequence[Task],
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
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
        try:
            futures = {pool.submit(measure_row, task, root): task for task in tasks}
            for future in as_completed(futures):
                done(futures[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def measure_row(task: Task, root: Path) -> str:
    """Measure one row; store it unless its inputs and numbers are those on record. Says what happened."""
    from fscil_bench.evaluate import Arena
    from fscil_bench.registry import configure
    from fscil_bench.results import as_record, lock_path, record_path, store, store_failure

    arena = Arena(task.dataset, task.backbone)
    configured = configure(task.method, task.dataset, task.settings)
    path = record_path(root, configured, arena.protocol, arena.backbone)
    draws, _ = arena.draws((), None, costly=configured.method.costly)
    with exclusive(lock_path(path), f"writing {path.name}"):
        try:
            result = arena.run(configured, draws)
        except UsageError:
            raise
        except Exception as error:
            store_failure(path, configured, arena.backbone, arena.split, f"{type(error).__name__}: {error}")
            return f"failed: {error}"
        if path.is_file() and same_inputs_and_numbers(_read_or_none(path), as_record(result)):
            return "unchanged"
        store(path, result)
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


def _start_worker() -> None:
    """Processes share the cores, so each takes one thread; an interrupt is the parent's to handle."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
