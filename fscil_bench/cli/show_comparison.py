"""How `compare` shows rows side by side."""

from fscil_bench.backbones.pretraining import pretraining_note
from fscil_bench.backbones.store import Backbone
from fscil_bench.cli.render import show_notes, show_table
from fscil_bench.cli.show_episodes import show_episode_comparison
from fscil_bench.leaderboard.comparison import Comparison, Line
from fscil_bench.leaderboard.episode_comparison import NAMES, NO_EPISODES, EpisodeComparison
from fscil_bench.leaderboard.episode_tables import episode_cells
from fscil_bench.leaderboard.statistics import COMPARED, TESTS
from fscil_bench.markdown import number, spread
from fscil_bench.metrics import HEADLINE, SHORT
from fscil_bench.protocols import Protocol
from fscil_bench.words import HEADLINE_DEFINITIONS, MEMORY, RANDOM_BASE, privilege_notes


def show_comparison(
    comparison: Comparison, few_shot: EpisodeComparison, protocol: Protocol, backbone: Backbone
) -> None:
    if comparison.lines:
        _show_sessions(comparison, few_shot, f"{protocol.name} on {backbone.id}")
    show_episode_comparison(few_shot, f"{protocol.name} on {backbone.id}")
    rows = [*(line.row for line in comparison.lines), *few_shot.rows]
    show_notes(
        [
            "Intervals and tests are conditional on this one backbone",
            *([RANDOM_BASE] if any(row.record["method"]["sampled"] for row in rows) else ()),
            *filter(None, [pretraining_note(backbone.card)]),
        ]
    )


def _show_sessions(comparison: Comparison, few_shot: EpisodeComparison, place: str) -> None:
    lines = [line for line in comparison.lines if line.summaries]
    _show_means(lines, few_shot, place)
    if comparison.baseline is not None and (cells := comparison.difference_cells()):
        columns = ["method", "pairs", *(text for m in COMPARED for text in (f"Δ {SHORT[m]} (95 %)", "p"))]
        show_table(f"minus {comparison.baseline.label}", columns, cells)
        show_notes(["Differences are paired over the same draws of the same bank", TESTS])
    standard = [line for line in lines if line.percentiles]
    if standard:
        rows = [
            [line.row.shown, *(f"{number(line.row.standard(k))} ({p:.0f})" for k, p in line.percentiles.items())]
            for line in standard
        ]
        show_table("standard draw (and its percentile among the random ones)", ["method", *HEADLINE.values()], rows)
    failed = [line.row for line in comparison.lines if line.row.failed]
    show_notes([*(f"{row.shown} failed: {row.failed}" for row in failed), *HEADLINE_DEFINITIONS.values()])


def _show_means(lines: list[Line], few_shot: EpisodeComparison, place: str) -> None:
    """The main table; beneath it what its rows may use, and why few-shot numbers are missing."""
    names = NAMES.values() if few_shot.rows else ()
    episodes = [episode_cells(line.row, few_shot.rows) if names else [] for line in lines]
    rows = [
        [line.row.shown, line.row.memory, *map(spread, line.summaries.values()), *cells, str(len(line.row.draws))]
        for line, cells in zip(lines, episodes, strict=True)
    ]
    title = f"{place}, last session: mean over random draws ± half of its 95 % interval (sd)"
    show_table(title, ["method", MEMORY, *HEADLINE.values(), *names, "draws"], rows, left=2)
    missing = [NO_EPISODES] if any("–" in cells for cells in episodes) else []
    show_notes([*privilege_notes(name for line in lines for name in line.row.privileges), *missing])
