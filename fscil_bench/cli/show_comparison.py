"""How `compare` shows rows side by side."""

import click

from fscil_bench.backbones.store import Backbone
from fscil_bench.cli.render import show_table
from fscil_bench.cli.show_episodes import show_episode_comparison
from fscil_bench.leaderboard.comparison import Comparison
from fscil_bench.leaderboard.episode_comparison import NAMES, EpisodeComparison
from fscil_bench.leaderboard.episode_tables import episode_cells
from fscil_bench.leaderboard.statistics import COMPARED
from fscil_bench.markdown import number, spread
from fscil_bench.metrics import DEFINITIONS, HEADLINE, PD_DEFINITION, SHORT
from fscil_bench.protocols import Protocol


def show_comparison(
    comparison: Comparison, few_shot: EpisodeComparison, protocol: Protocol, backbone: Backbone
) -> None:
    if comparison.lines:
        _show_sessions(comparison, few_shot, protocol, backbone)
    show_episode_comparison(few_shot, protocol, backbone.id)


def _show_sessions(comparison: Comparison, few_shot: EpisodeComparison, protocol: Protocol, backbone: Backbone) -> None:
    lines = [line for line in comparison.lines if line.summaries]
    rows = [
        [line.row.shown, *map(spread, line.summaries.values()), *cells, str(len(line.row.draws))]
        for line in lines
        for cells in [episode_cells(line.row, few_shot.rows) if few_shot.rows else []]
    ]
    title = f"{protocol.name} on {backbone.id}, last session: mean over random draws ± half of its 95 % interval (sd)"
    show_table(title, ["method", *HEADLINE.values(), *(NAMES.values() if few_shot.rows else ()), "draws"], rows)
    if comparison.baseline is not None and (cells := comparison.difference_cells()):
        columns = ["method", "pairs", *(text for m in COMPARED for text in (f"Δ {SHORT[m]} (95 %)", "p"))]
        show_table(f"minus {comparison.baseline.label}", columns, cells)
    standard = [line for line in lines if line.percentiles]
    if standard:
        rows = [
            [line.row.shown, *(f"{number(line.row.standard(k))} ({p:.0f})" for k, p in line.percentiles.items())]
            for line in standard
        ]
        show_table("standard draw (and its percentile among the random ones)", ["method", *HEADLINE.values()], rows)
    for line in comparison.lines:
        if line.row.failed:
            click.echo(f"{line.row.shown} failed: {line.row.failed}")
    for text in (*(text for key, text in DEFINITIONS.items() if key in HEADLINE), PD_DEFINITION):
        click.echo(text)
    if comparison.baseline is None:
        return
    click.echo(
        "Differences are paired over the same draws of the same bank; p: Wilcoxon signed-rank, corrected after Holm "
        "over all tests shown. Intervals and tests are conditional on this one backbone."
    )
