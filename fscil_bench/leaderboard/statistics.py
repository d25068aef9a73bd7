"""Comparisons between rows: paired over the same draws of the same bank, or not at all."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fscil_bench.leaderboard.rows import EpisodeRow, Row
from fscil_bench.markdown import interval, number
from fscil_bench.metrics import HEADLINE, Summary, summarise

if TYPE_CHECKING:
    from fscil_bench.episodes import Played

COMPARED = ("avg_acc", "hmean", "new_acc", "base_acc")
TESTS = (
    "p: Wilcoxon signed-rank, corrected after Holm. Of the tests in one table, those among the leaderboard's rows are "
    "one family, and those with a row of your own another; incomplete rows are not tested"
)
SMALLEST = 1e-300  # smaller p-values are lost to underflow
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """Row minus baseline over common draws, and the p-value of Wilcoxon's signed-rank test; NaN: not tested."""

    summary: Summary
    p: float

    def cells(self) -> list[str]:
        """Text for a table: the mean with its interval, and p."""
        mean = number(self.summary.mean, signed=True)
        return [f"{mean} ({interval(self.summary, signed=True)})", p_value(self.p)]


def p_value(p: float) -> str:
    """One digit; a bound where nothing is left of the number, a dash where there was no test."""
    if math.isnan(p):
        return "–"
    return f"{p:.1g}" if p >= SMALLEST else f"<{SMALLEST:.0e}"


def difference(row: Row, baseline: Row, metric: str) -> Difference | None:
    """Paired difference of a headline number, or None where the rows cannot be paired."""
    if row.failed or baseline.failed or row.bank != baseline.bank or row.protocol != baseline.protocol:
        return None
    place = {name: i for i, name in enumerate(baseline.draws)}
    common = [(i, place[name]) for i, name in enumerate(row.draws) if name in place]
    if len(common) < 2:
        return None
    ours, theirs = (list(indices) for indices in zip(*common, strict=True))
    # rounded, so that equal gaps rank as ties whatever the last bits say
    gaps = np.round(row.headline(metric)[ours] - baseline.headline(metric)[theirs], 9)
    return Difference(summarise(gaps), _wilcoxon(gaps))


def episode_difference(row: EpisodeRow, baseline: EpisodeRow, shots: int) -> Difference | None:
    """Paired difference over the episodes that both have played, or None where the rows cannot be paired."""
    if row.bank != baseline.bank or row.protocol != baseline.protocol or shots not in {*row.shots} & {*baseline.shots}:
        return None
    if any(row.plan[key] != baseline.plan[key] for key in ("ways", "queries", "seed")):
        return None
    common = min(row.plan["count"], baseline.plan["count"])  # the first episodes are the same however many follow
    if common < 2:
        return None
    gaps = np.round(row.accuracy(shots)[:common] - baseline.accuracy(shots)[:common], 9)
    return Difference(summarise(gaps), _wilcoxon(gaps))


def differences_in_episodes(ours: "Played", theirs: "Played") -> dict[int, Summary]:
    """Paired differences by shots between two methods that have just played the same episodes."""
    if ours.plan != theirs.plan:
        raise ValueError("paired differences need the same episodes")
    return {shots: summarise(ours.accuracy(shots) - theirs.accuracy(shots)) for shots in ours.plan.shots}


def differences_between(record: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Summary]:
    """Paired differences of all headline numbers between two records just made; those of one draw have no interval."""
    ours, theirs = Row(Path(), record), Row(Path(), baseline)
    if ours.bank != theirs.bank or ours.draws != theirs.draws:
        raise ValueError("paired differences need the same bank and draws")
    return {metric: summarise(ours.headline(metric) - theirs.headline(metric)) for metric in HEADLINE}


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: what each p-value is worth among all of them."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def family(row: Row, baseline: Row) -> str | None:
    """Whose tests are corrected together, so that a user's rows move no p-value of the leaderboard's. None: no test."""
    if not (row.complete and baseline.complete):
        return None
    return "own" if row.own or baseline.own else "leaderboard"


def corrected(gaps: Mapping[Key, Difference], families: Mapping[Key, str | None]) -> dict[Key, Difference]:
    """The differences with p-values corrected after Holm, each family by itself; NaN for what is of none."""
    p_values = dict.fromkeys(gaps, math.nan)
    for name in {families[key] for key in gaps} - {None}:
        members = [key for key in gaps if families[key] == name]
        p_values.update(zip(members, holm([gaps[key].p for key in members]), strict=True))
    return {key: Difference(gap.summary, p_values[key]) for key, gap in gaps.items()}


def percentile(value: float, among: np.ndarray) -> float:
    """Share of random draws that score at most `value`, ties counted half, in percent."""
    return float(100 * (np.mean(among < value) + np.mean(among == value) / 2))


def common_baseline(rows: Sequence[Row]) -> str | None:
    """The method that most of the rows say they build on; the leaderboard's rows decide where there are any."""
    for asked in ([row for row in rows if not row.own], rows):
        named = [row.record["method"]["baseline"] for row in asked if row.record["method"]["baseline"]]
        if named:
            return str(max(sorted(set(named)), key=named.count))
    return None


def _wilcoxon(gaps: np.ndarray) -> float:
    if not gaps.any():
        return 1.0
    from scipy.stats import wilcoxon

    return float(wilcoxon(gaps).pvalue)
