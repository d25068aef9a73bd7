"""Does the code still give the few-shot accuracies on record?"""

from dataclasses import asdict

import numpy as np

from fscil_bench.episode_results import episode_record
from fscil_bench.errors import FscilError
from fscil_bench.evaluate import Arena
from fscil_bench.files import plain
from fscil_bench.leaderboard.check import EXACT, SAMPLED, Moved, Verdict, changed_inputs
from fscil_bench.leaderboard.rows import EpisodeRow
from fscil_bench.metrics import summarise
from fscil_bench.protocols.episodes import Plan
from fscil_bench.registry import configure

FEW_ANSWERS = 3  # that may differ where random numbers are drawn: few, yet much in the mean of a few episodes
QUICK, QUICK_COSTLY = 300, 40  # episodes that a quick check plays: of cheap methods, of costly ones
TIED = 1000  # of so many episodes, one may differ by one answer: two classes scored alike there


def check_episodes(row: EpisodeRow, backbone: str | None = None, *, quick: bool = False) -> Verdict:
    """Play a recorded row's episodes anew, all or the first few, and compare; `backbone` as in `check_row`."""
    verdict = Verdict(row)
    if row.failed:
        verdict.problems.append(f"the record says that the method failed: {row.failed}")
        return verdict
    try:
        configured = configure(row.method, row.protocol, row.given)
        few = QUICK_COSTLY if configured.method.costly else QUICK
        count = min(row.plan["count"], few) if quick else row.plan["count"]
        plan = Plan(row.shots, row.plan["ways"], row.plan["queries"], count, row.plan["seed"])
        result = Arena(row.protocol, backbone or row.backbone).play(configured, plan)
    except FscilError as error:
        verdict.problems.append(str(error))
        return verdict
    verdict.changed = changed_inputs(row.record, episode_record(result))
    for shots in row.shots:
        name, before = plan.name(shots), row.right(shots)[:count].astype(int)
        after = result.played.right[shots].astype(int)
        questions = plan.ways * plan.queries
        expected, got = (100 * float(right.mean()) / questions for right in (before, after))
        answers = 100 * FEW_ANSWERS / (count * questions)
        if not abs(got - expected) <= (max(SAMPLED, answers) if configured.method.sampled else EXACT):
            verdict.moved.append(Moved(name, f"{count} episodes", "mean", expected, got))
        elif not configured.method.sampled and _more_than_ties(before, after):
            verdict.problems.append(f"{int((before != after).sum())} of {count} episodes of {name} have other counts")
        verdict.moved += _summary_moved(row, name, shots)
    return verdict


def _more_than_ties(before: np.ndarray, after: np.ndarray) -> bool:
    gaps = np.abs(before - after)
    return bool(gaps.max() > 1 or (gaps > 0).sum() > max(1, len(gaps) // TIED))


def _summary_moved(row: EpisodeRow, name: str, shots: int) -> list[Moved]:
    """Numbers in the record that are not those of the counts beside them."""
    stored = row.record["shots"][str(shots)]["summary"]
    moves = [
        Moved(name, "recorded counts", part, stored[part], value)
        for part, value in plain(asdict(summarise(row.accuracy(shots)))).items()
    ]
    return [move for move in moves if move.expected != move.got and not abs(move.difference) <= EXACT]
