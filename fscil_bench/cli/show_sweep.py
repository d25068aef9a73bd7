"""How `sweep` shows its best points beside the settings that a method comes with."""

import click

from fscil_bench.analysis.sweep_report import Report
from fscil_bench.cli.render import show_table
from fscil_bench.markdown import counted
from fscil_bench.metrics import HEADLINE
from fscil_bench.words import RANDOM_BASE


def show_sweep(report: Report) -> None:
    amount = f"{counted(len(report.grid), 'point')}, last session, mean over {counted(report.draws, 'draw')}"
    title = f"{report.label} on {report.protocol.name}, {report.backbone}: {amount}"
    columns = ["", "settings", *HEADLINE.values(), "points as good"]
    show_table(f"{title} ± half of its 95 % interval (sd)", columns, report.rows(), left=2)
    click.echo("Points as good: their paired difference from the best has a 95 % interval that reaches 0.")
    if report.grid[0].configured.method.sampled:
        click.echo(f"{RANDOM_BASE}.")
    if warning := report.warning():
        click.echo(warning)
