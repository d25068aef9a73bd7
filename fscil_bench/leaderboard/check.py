"""Does the code still give the numbers on record? Every moved number is named, with the input that changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fscil_bench.errors import FscilError
from fscil_bench.evaluate import Arena
from fscil_bench.leaderboard.rows import Row
from fscil_bench.progress import note
from fscil_bench.protocols.draws import Draw, UnresolvedDrawError
from fscil_bench.records import STANDARD
from fscil_bench.registry import Configured, configure
from fscil_bench.results import Result, as_record, read_predictions
from fscil_bench.runner import scores_after

EXACT, SAMPLED = 0.005, 0.05  # points a number may move: closed forms, methods that draw random numbers
HEADLINE = "headline"
QUICK = 2  # the last session of a quick check of a costly method
TIE = 1e-9


@dataclass(frozen=True)
class Moved:
    """A number that is not what the record says."""

    metric: str
    draw: str
    where: str  # the session, or HEADLINE
    expected: float | None
    got: float | None

    @property
    def difference(self) -> float:
        return (np.nan if self.got is None else self.got) - (np.nan if self.expected is None else self.expected)


@dataclass
class Verdict:
    """What checking a row found."""

    row: Row
    moved: list[Moved] = field(default_factory=list)  # the worst of each metric
    problems: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # inputs that are not those of the record

    @property
    def failed(self) -> bool:
        return bool(self.moved or self.problems)


def check_row(row: Row, backbone: str | None = None, *, quick: bool = False) -> Verdict:
    """Measure a recorded row anew and compare; `backbone` is its folder, if not its id.

    A quick check is of one draw, and of costly methods of the first sessions.
    """
    verdict = Verdict(row)
    if row.failed:
        verdict.problems.append(f"the record says that the method failed: {row.failed}")
        return verdict
    try:
        arena = Arena(row.protocol, backbone or row.backbone)
        configured = configure(row.method, row.protocol, row.given)
        draws = _draws(arena, row, quick=quick)
        last = QUICK if quick and configured.method.costly else None
        result = arena.run(configured, draws, last=last)
    except FscilError as error:
        verdict.problems.append(str(error))
        return verdict
    new = as_record(result)
    tolerance = SAMPLED if configured.method.sampled else EXACT
    verdict.changed = changed_inputs(row.record, new)
    verdict.moved = _moved(row.record, new, tolerance, whole=last is None)
    if last is None and not verdict.moved:
        verdict.moved = _summary_moved(row.record, new, tolerance)
    if not configured.method.sampled:
        verdict.problems += _other_predictions(row.path, result, arena, configured, draws)
    return verdict


def _draws(arena: Arena, row: Row, *, quick: bool) -> list[Draw]:
    """The draws of the record; the standard one is left out where its images cannot be found here."""
    names = row.draws
    if row.record["standard"] is not None:
        try:
            arena.draws([STANDARD])
            names = [STANDARD, *names]
        except UnresolvedDrawError as error:
            note(f"Not checked: {row.label}, standard draw: {error}")
    return arena.draws(names[:1] if quick else names)


def changed_inputs(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    changed = []
    before, after = old["method"]["settings"], new["method"]["settings"]
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            changed.append(f"setting {key}: {before.get(key)} -> {after.get(key)}")
    for name, one, other in (
        ("bank", old["backbone"]["bank_sha256"], new["backbone"]["bank_sha256"]),
        ("protocol", old["protocol"]["sha256"], new["protocol"]["sha256"]),
        ("code", old["method"]["code_sha256"], new["method"]["code_sha256"]),
    ):
        if one != other:
            changed.append(name)
    return changed


def _moved(old: dict[str, Any], new: dict[str, Any], tolerance: float, *, whole: bool) -> list[Moved]:
    """Of each metric the number that moved most, if one moved by more than the tolerance.

    Headline numbers are those of the last session: they are compared if the walk was a whole one.
    """
    before, after = _numbers(old), _numbers(new)
    worst: dict[str, Moved] = {}
    for key, got in after.items():
        metric, draw, where = key
        if where == HEADLINE and not whole:
            continue
        move = Moved(metric, draw, where, before.get(key), got)
        if move.expected is None and got is None:
            continue
        known = worst.get(metric)
        if not abs(move.difference) <= tolerance and (known is None or abs(move.difference) > abs(known.difference)):
            worst[metric] = move
    return list(worst.values())


def _numbers(record: dict[str, Any]) -> dict[tuple[str, str, str], float | None]:
    """Every number of a record by metric, draw and place: session by session, headline, and as papers count."""
    names, metrics = record["draws"]["names"], record["draws"]["metrics"]
    of_draws = {name: {group: _pick(metrics[group], i) for group in metrics} for i, name in enumerate(names)}
    if record["standard"] is not None:
        of_draws[STANDARD] = record["standard"]
    found: dict[tuple[str, str, str], float | None] = {}
    for draw, groups in of_draws.items():
        for group, by_metric in groups.items():
            for metric, values in by_metric.items():
                name = f"{metric} (paper)" if group == "paper" else metric
                if isinstance(values, list):
                    found |= {(name, draw, f"session {t}"): value for t, value in enumerate(values)}
                else:
                    found[name, draw, HEADLINE] = values
    return found


def _pick(by_metric: dict[str, list[Any]], place: int) -> dict[str, Any]:
    return {metric: values[place] for metric, values in by_metric.items()}


def _summary_moved(old: dict[str, Any], new: dict[str, Any], tolerance: float) -> list[Moved]:
    """Means over draws that are not those of the draws; only if the draws are all there."""
    if old["draws"]["names"] != new["draws"]["names"]:
        return []
    moves = [
        Moved(metric, "all draws", part, (old["summary"].get(metric) or {}).get(part), value)
        for metric, values in new["summary"].items()
        for part, value in values.items()
    ]
    return [move for move in moves if move.expected != move.got and not abs(move.difference) <= tolerance]


def _other_predictions(
    record: Path, result: Result, arena: Arena, configured: Configured, draws: Sequence[Draw]
) -> list[str]:
    """Stored predictions that are no longer made, ties aside."""
    try:
        draw, stored = read_predictions(record)
    except FscilError as error:
        return [str(error)]
    if draw not in result.walk.draws:
        missed = draw == STANDARD  # it could not be resolved here, and that was said
        return [] if missed else [f"the stored predictions are of draw {draw}, which the record does not hold"]
    position = result.walk.draws.index(draw)
    now = result.walk.predictions[position]
    whole = (arena.protocol.sessions + 1, now.shape[1])
    if stored.shape != whole:
        return [f"the stored predictions have shape {list(stored.shape)}, expected {list(whole)}"]
    stored = stored[: len(now)]
    other = 0
    for session in np.flatnonzero((stored != now).any(axis=1)):
        places = np.flatnonzero(stored[session] != now[session])
        scores = scores_after(configured.method, arena.split, draws[position], int(session), places)
        other += int((~_tied(scores, stored[session][places], now[session][places])).sum())
    return [f"{other} predictions of draw {draw} differ from those stored"] if other else []


def _tied(
    scores: npt.NDArray[np.float64], one: npt.NDArray[np.int16], other: npt.NDArray[np.int16]
) -> npt.NDArray[np.bool_]:
    rows = np.arange(len(scores))
    inside = (one >= 0) & (one < scores.shape[1]) & (other >= 0)
    a = scores[rows, np.clip(one, 0, scores.shape[1] - 1)]
    b = scores[rows, np.clip(other, 0, scores.shape[1] - 1)]
    return np.asarray(inside & (np.abs(a - b) <= TIE * np.maximum(1, np.abs(a))))
