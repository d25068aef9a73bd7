"""The few-shot part of a leaderboard's tables, as text: pure functions of the records."""

from collections.abc import Sequence
from typing import Any

from fscil_bench.leaderboard.episode_comparison import NAMES, EpisodeComparison, ranked_episodes, shown_accuracy
from fscil_bench.leaderboard.rows import EpisodeRow, Row
from fscil_bench.markdown import number, table
from fscil_bench.protocols import Protocol, load_protocol
from fscil_bench.published import published_episodes


def episode_cells(row: Row, episodes: Sequence[EpisodeRow]) -> list[str]:
    """The few-shot columns of a row of the sessions: a dash where its episodes are not on record."""
    found = episodes_of(row, episodes)
    return [shown_accuracy(found, shots) for shots in NAMES]


def episodes_of(row: Row, episodes: Sequence[EpisodeRow]) -> EpisodeRow | None:
    """The full row of episodes by the same method, settings and bank, from the same side: a user's or shipped."""
    same = (other for other in episodes if other.complete and other.own == row.own)
    return next((other for other in same if other.identity == row.identity), None)


def episode_section(protocol: Protocol, rows: Sequence[EpisodeRow]) -> list[str]:
    """Accuracies beside published ones, then paired differences."""
    if not rows:
        return []
    comparison = EpisodeComparison.of([row for row in rows if row.complete])
    columns = ["method", *NAMES.values(), "episodes", *(f"published {name}" for name in NAMES.values())]
    lines = []
    for row in ranked_episodes(rows):
        name = row.shown + (f" (failed: {row.failed})" if row.failed else "")
        cells = [shown_accuracy(row, shots) for shots in NAMES]
        published = published_cells(protocol, row.label)  # other settings have no published number
        lines.append([name, *cells, str(row.plan.get("count", "–")), *published])
    parts = [
        f"### Few-shot episodes: mean ± half of its 95 % interval; published ones are of {other_conditions(protocol)}",
        table(columns, lines),
    ]
    if comparison.pairs:
        names = [text for name in NAMES.values() for text in (f"Δ {name} (95 %)", "p, Holm")]
        differences = [pair.cells() for pair in comparison.pairs]
        title = "### Paired differences in few-shot episodes, same episodes"
        parts += [title, table(["method", "minus", "pairs", *names], differences, left=2)]
    return parts


def published_cells(protocol: Protocol, method: str) -> list[str]:
    published = published_episodes(method, protocol.dataset)
    return [number(published.get(name)) for name in NAMES.values()]


def other_conditions(protocol: Protocol) -> str:
    """How published few-shot numbers differ from those measured here."""
    return "another backbone and class split" if protocol.sessions else "another backbone"


def episode_lines(rows: Sequence[EpisodeRow]) -> list[dict[str, Any]]:
    """One line of CSV for each row and number of shots."""
    lines = []
    for row in ranked_episodes(rows):
        for shots in row.shots:
            summary = row.summary(shots)
            assert summary is not None  # of its own shots
            lines.append(
                {
                    "dataset": row.protocol,
                    "backbone": row.backbone,
                    "method": row.label,
                    "status": "complete" if row.complete else "incomplete",
                    **{key: row.plan[key] for key in ("ways", "queries", "seed")},
                    "shots": shots,
                    "episodes": summary.n,
                    **{part: getattr(summary, part) for part in ("mean", "sd", "low", "high")},
                    "published": _published(row, shots),
                }
            )
    return sorted(lines, key=lambda line: (line["dataset"], line["backbone"], line["shots"]))


def _published(row: EpisodeRow, shots: int) -> float | str:
    known = published_episodes(row.label, load_protocol(row.protocol).dataset)
    return known.get(f"{row.plan['ways']}w{shots}s", "")
