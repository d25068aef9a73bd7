"""Measure rows anew: every method, in every setting that deserves a row, on every backbone with a bank."""

import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil_bench.backbones.store import Backbone
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import exclusive
from fscil_bench.leaderboard.rows import Row, load_rows
from fscil_bench.protocols import full_episodes, load_protocol
from fscil_bench.protocols.episodes import Plan, RefusedEpisodesError
from fscil_bench.records import STANDARD, Kind, read_record
from fscil_bench.registry import configure, load_method, loadable
from fscil_bench.settings import as_text, labelled

if TYPE_CHECKING:
    from fscil_bench.evaluate import Arena
    from fscil_bench.registry import Configured
    from fscil_bench.results import Result


@dataclass(frozen=True)
class Task:
    """One row to measure."""

    method: str
    dataset: str
    backbone: str
    settings: Mapping[str, str] = field(default_factory=dict)
    kind: Kind = "fscil"

    def __str__(self) -> str:
        what = ", few-shot episodes" if self.kind == "fsl" else ""
        return f"{labelled(self.method, self.settings)} on {self.dataset}, {Path(self.backbone).name}{what}"


def tasks_for(
    methods: Iterable[str], dataset: str | None, backbones: Iterable[Backbone], kinds: Sequence[Kind] = ("fscil",)
) -> list[Task]:
    """Every row that the methods have on the backbones (on their own datasets, if none is named).

    A method has a row with its defaults and one with each of the variants it declares, of each kind that it can have.
    """
    found = []
    for name in methods:
        kind = load_method(name)
        for backbone in backbones:
            if not backbone.suits(kind.objective):
                continue
            protocol = load_protocol(dataset or backbone.card["dataset"])
            if protocol.is_validation and dataset is None:  # for choosing settings, not for ranking
                continue
            possible = {"fscil": bool(protocol.sessions), "fsl": kind.episodes}
            for variant in ({}, *(kind.variants if "+" not in name else ())):
                settings = {key: as_text(value) for key, value in variant.items()}
                place = (name, protocol.name, str(backbone.folder), settings)
                found += [Task(*place, kind=of) for of in kinds if possible[of]]
    return found


def recorded_tasks(
    records: Path,
    known: Sequence[Task],
    backbones: Sequence[Backbone],
    methods: Sequence[str],
    kinds: Sequence[Kind] = ("fscil",),
) -> list[Task]:
    """Rows on record that are not among the `known` tasks: other settings, composed methods."""
    return [
        task for row, task in _rows_with_tasks(records, backbones, methods) if row.kind in kinds and task not in known
    ]


def unmeasured(tasks: Sequence[Task], records: Path, backbones: Sequence[Backbone]) -> list[Task]:
    """The tasks that have no full row on record, be it that a method has since asked for more draws or episodes."""
    have = [
        task
        for row, task in _rows_with_tasks(records, backbones, {task.method for task in tasks})
        if not row.failed
        and row.complete
        and row.record["method"]["costly"] == (row.kind in load_method(row.method).costly)
    ]
    return [task for task in tasks if task not in have]


def _rows_with_tasks(records: Path, backbones: Sequence[Backbone], methods: Collection[str]) -> list[tuple[Row, Task]]:
    """The rows on record of some methods (or all) and backbones, each with the task that measures it anew."""
    folders = {backbone.id: str(backbone.folder) for backbone in backbones}
    loaded = load_rows([(records, False)], backbones)
    found = []
    for row in (*loaded.rows, *loaded.episodes):
        if row.backbone in folders and (not methods or row.method in methods):
            found.append((row, Task(row.method, row.protocol, folders[row.backbone], row.given, row.kind)))
    return found


def cheap() -> list[str]:
    """The methods that load and declare no kind of row of theirs costly."""
    return [name for name in loadable() if not load_method(name).costly]


def declared_baseline(methods: Iterable[str], dataset: str) -> str | None:
    """What most of these methods say they build on."""
    named = [baseline for name in methods if (baseline := configure(name, dataset).baseline)]
    return max(dict.fromkeys(named), key=named.count) if named else None


def measure_rows(
    tasks: Sequence[Task],
    root: Path,
    done: Callable[[Task, str], None] = lambda task, outcome: None,
    workers: int | None = None,
) -> None:
    """Measure the tasks, each in a process of its own, and store what changed under `root`; `done` hears of each.

    The peak memory of a process never falls, so one that had measured a row before would put that row's on record. A
    single task is measured in the calling process, which has measured none.
    """
    if len(tasks) <= 1:
        for task in tasks:
            done(task, measure_row(task, root))
        return
    count = min(workers or os.cpu_count() or 1, len(tasks))
    context = get_context("forkserver")  # on Linux the peak of a spawned process starts at that of its parent
    with ProcessPoolExecutor(
        count, mp_context=context, initializer=_start_worker, initargs=(count,), max_tasks_per_child=1
    ) as pool:
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
    from fscil_bench.results import failure_path, lock_path, record_path, store_failure

    arena = Arena(task.dataset, task.backbone)
    configured = configure(task.method, task.dataset, task.settings)
    path = record_path(root, configured, arena.protocol, arena.backbone, task.kind)
    with exclusive(lock_path(path), f"writing {path.name}"):
        try:
            changed = (_sessions if task.kind == "fscil" else _episodes)(path, arena, configured)
        except RefusedEpisodesError as error:
            return f"skipped: {error}"
        except UsageError:
            raise
        except Exception as error:
            store_failure(path, configured, arena.backbone, arena.split, f"{type(error).__name__}: {error}")
            return f"failed: {error}"
        failure_path(path).unlink(missing_ok=True)
        return "measured" if changed else "unchanged"


def _sessions(path: Path, arena: "Arena", configured: "Configured") -> bool:
    """Measure a full row of sessions; whether the record at `path` had to be written."""
    from fscil_bench.results import store

    draws, _ = arena.full_draws(costly="fscil" in configured.method.costly)
    result = arena.run(configured, draws)
    if _is_stored(path, result):
        return False
    store(path, result)
    return True


def _episodes(path: Path, arena: "Arena", configured: "Configured") -> bool:
    """Measure a full row of few-shot episodes; whether the record at `path` had to be written."""
    from fscil_bench.episode_results import episode_record, store_episodes

    result = arena.play(configured, Plan(count=full_episodes(costly="fsl" in configured.method.costly)))
    old = _read_or_none(path) if path.is_file() else None
    if old is not None and same_inputs_and_numbers(old, episode_record(result)):
        return False
    store_episodes(path, result)
    return True


def _is_stored(path: Path, result: "Result") -> bool:
    """Whether the record at `path`, predictions included, is what `result` would be stored as."""
    from fscil_bench.results import as_record, read_predictions

    old = _read_or_none(path) if path.is_file() else None
    if old is None or not same_inputs_and_numbers(old, as_record(result)):
        return False
    try:
        draw, stored = read_predictions(path)
    except FscilError:
        return False
    if draw not in result.walk.draws:
        return draw == STANDARD  # kept from where it could be resolved
    return bool((stored == result.walk.predictions[result.walk.draws.index(draw)]).all())


def same_inputs_and_numbers(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Equal but for costs, environment and package version; a standard draw that cannot be resolved here is kept."""

    def essence(record: Mapping[str, Any]) -> dict[str, Any]:
        ignored = ("cost", "environment", *(("standard",) if new.get("standard") is None else ()))
        kept = {key: value for key, value in record.items() if key not in ignored}
        return {**kept, "method": {key: value for key, value in record["method"].items() if key != "version"}}

    return essence(old) == essence(new)


def _read_or_none(path: Path) -> dict[str, Any] | None:
    """The record, or None if it is damaged and must be written anew in any case."""
    try:
        return read_record(path)
    except FscilError:
        return None


def _start_worker(count: int) -> None:
    """The `count` processes share the cores; an interrupt is the parent's to handle."""
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // count))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
