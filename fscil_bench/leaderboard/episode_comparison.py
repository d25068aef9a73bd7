"""Few-shot episodes of several rows side by side, with paired differences over the same episodes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fscil_bench.files import plain
from fscil_bench.leaderboard.rows import EpisodeRow, row_key
from fscil_bench.leaderboard.statistics import Difference, common_baseline, corrected, episode_difference, family
from fscil_bench.markdown import number
from fscil_bench.metrics import Summary
from fscil_bench.protocols.episodes import QUERIES, SHOTS, WAYS

NAMES = {shots: f"{WAYS}w{shots}s" for shots in SHOTS}
DEFINITION = (
    f"{', '.join(NAMES.values())}: few-shot accuracy. The mean over episodes of {WAYS} new classes with "
    f"{' or '.join(map(str, SHOTS))} labelled images each and {QUERIES} to classify among them; base classes are donors"
)
NO_EPISODES = (
    f"– in {' and '.join(NAMES.values())}: no full row of few-shot episodes on record, which `fscil-bench fsl` makes; "
    "methods with the privilege all_data take no part in them"
)


@dataclass(frozen=True)
class Pair:
    """One row minus another, over the episodes that both have played."""

    row: EpisodeRow
    minus: EpisodeRow
    differences: dict[int, Difference]  # by shots, p-values corrected after Holm over a family of pairs

    def cells(self) -> list[str]:
        """Text for a table: row, minus, number of pairs, then mean with interval and p-value for each shot."""
        gaps = [self.differences.get(shots) for shots in SHOTS]
        pairs = max(gap.summary.n if gap else 0 for gap in gaps)
        texts = [text for gap in gaps for text in (gap.cells() if gap else ["–", "–"])]
        return [self.row.shown, self.minus.shown, str(pairs), *texts]


@dataclass(frozen=True)
class EpisodeComparison:
    """Rows, best first, and pairs: each row with the baseline, and with what its paper is measured against."""

    rows: list[EpisodeRow]
    pairs: list[Pair]

    @classmethod
    def of(cls, rows: Sequence[EpisodeRow], baseline: str | None = None) -> "EpisodeComparison":
        """Compare each row with the one called `baseline`, or with what most rows build on."""
        order = ranked_episodes(rows)
        measured = [row for row in order if not row.failed]
        by_label = {row.label: row for row in reversed(rows) if not row.failed}  # of several the first given
        base = baseline or common_baseline(measured)
        wanted = [
            (row, by_label[name])
            for row in measured
            for name in dict.fromkeys((base, *row.record["compared_with"]))
            if name in by_label and by_label[name] is not row
        ]
        found = {
            (i, shots): gap
            for i, pair in enumerate(wanted)
            for shots in SHOTS
            if (gap := episode_difference(*pair, shots)) is not None
        }
        tested = corrected(found, {key: family(*wanted[key[0]]) for key in found})
        pairs = [
            Pair(*pair, {shots: tested[i, shots] for shots in SHOTS if (i, shots) in tested})
            for i, pair in enumerate(wanted)
        ]
        return cls(order, [pair for pair in pairs if pair.differences])

    def as_data(self) -> dict[str, Any]:
        return {
            "rows": [
                {
                    **row.facts,
                    **row.plan,
                    "summary": {str(s): plain(asdict(summary)) for s, summary in _summaries(row).items()},
                }
                for row in self.rows
            ],
            "paired": [
                {
                    "label": pair.row.label,
                    "minus": pair.minus.label,
                    "difference": {
                        str(s): {**plain(asdict(gap.summary)), "p_holm": plain(gap.p)}
                        for s, gap in pair.differences.items()
                    },
                }
                for pair in self.pairs
            ],
        }


def ranked_episodes(rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
    """Best first by the fewest shots, then incomplete rows, references, rows that failed."""

    def key(row: EpisodeRow) -> tuple[Any, ...]:
        first = row.summary(SHOTS[0])
        return (bool(row.failed), row.is_reference, not row.complete, -(first.mean if first else 0.0), row_key(row))

    return sorted(rows, key=key)


def shown_accuracy(row: EpisodeRow | None, shots: int) -> str:
    """`mean ± half of the interval`, or a dash."""
    summary = None if row is None or row.failed or row.plan["ways"] != WAYS else row.summary(shots)
    return "–" if summary is None else f"{number(summary.mean)} ± {number(summary.high - summary.mean)}"


def _summaries(row: EpisodeRow) -> dict[int, Summary]:
    return {shots: summary for shots in row.shots if (summary := row.summary(shots)) is not None}
