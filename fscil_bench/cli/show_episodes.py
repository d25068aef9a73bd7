"""How `fsl` shows few-shot episodes, and `compare` those of several methods."""

from collections.abc import Mapping

from fscil_bench.backbones.pretraining import pretraining_note
from fscil_bench.cli.render import show_notes, show_table
from fscil_bench.episode_results import EpisodeResult
from fscil_bench.leaderboard.episode_comparison import DEFINITION, NAMES, EpisodeComparison, shown_accuracy
from fscil_bench.leaderboard.episode_tables import other_conditions
from fscil_bench.leaderboard.statistics import TESTS
from fscil_bench.markdown import counted, interval, number
from fscil_bench.metrics import Summary
from fscil_bench.published import published_episodes
from fscil_bench.words import RANDOM_BASE


def show_episodes(result: EpisodeResult, baseline: str | None, differences: Mapping[int, Summary]) -> None:
    configured, protocol, plan = result.configured, result.split.protocol, result.played.plan
    published = {} if configured.changed else published_episodes(configured.name, protocol.dataset)
    columns = ["", "accuracy", "95 % interval", "sd"]
    columns += [f"minus {baseline}, paired", "95 % interval"] if differences else []
    columns += ["published"] if published else []
    rows = []
    for shots, summary in result.played.summaries().items():
        row = [plan.name(shots), number(summary.mean), interval(summary), number(summary.sd)]
        if gap := differences.get(shots):
            row += [number(gap.mean, signed=True), interval(gap, signed=True)]
        rows.append([*row, *([number(published.get(plan.name(shots)))] if published else [])])
    show_table(
        f"{configured.label} on {protocol.name}, {counted(plan.count, 'episode')}, seed {plan.seed}", columns, rows
    )
    show_notes(
        [
            f"Accuracy: the mean over episodes of {plan.ways} new classes with as many labelled images each as shots, "
            f"and {plan.queries} queries a class, answered among the episode's classes; base classes are donors only",
            "Intervals: 95 %, Student-t, of the mean over episodes; all on this one backbone",
            *([RANDOM_BASE] if configured.method.sampled else ()),
            *([f"Published numbers are of {other_conditions(protocol)}"] if published else ()),
            f"Backbone: {result.backbone.id}",
            *filter(None, [pretraining_note(result.backbone.card)]),
            f"Settings: {configured.explained}",
        ]
    )


def show_episode_comparison(comparison: EpisodeComparison, place: str) -> None:
    """Rows that have played episodes, and their paired differences."""
    rows = [
        [row.shown, *(shown_accuracy(row, shots) for shots in NAMES), str(row.plan["count"])]
        for row in comparison.rows
        if not row.failed
    ]
    if not rows:
        return
    title = f"{place}, few-shot episodes: mean ± half of its 95 % interval"
    show_table(title, ["method", *NAMES.values(), "episodes"], rows)
    if comparison.pairs:
        columns = ["method", "minus", "pairs", *(t for name in NAMES.values() for t in (f"Δ {name} (95 %)", "p"))]
        show_table("paired differences in episodes", columns, [pair.cells() for pair in comparison.pairs], left=2)
        show_notes(["Differences are paired over the episodes that both rows have played", TESTS])
    failed = [row for row in comparison.rows if row.failed]
    show_notes([*(f"{row.shown} failed in episodes: {row.failed}" for row in failed), DEFINITION])
