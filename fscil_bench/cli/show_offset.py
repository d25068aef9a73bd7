"""How `analyze offset` shows its table, and what the columns mean."""

import click

from fscil_bench.analysis.offset_report import COLUMNS, OffsetReport
from fscil_bench.cli.render import show_table
from fscil_bench.words import RANDOM_BASE


def show_offset(report: OffsetReport) -> None:
    base = report.baseline
    of = f"{report.dataset} on {report.backbone}, last session; Δ over {base}, paired"
    show_table(f"one offset on all new-class scores, {of}", list(COLUMNS), report.rows())
    click.echo(
        "BAcc, NAcc, area: mean over draws ± half of its 95 % interval (sd). Area: percent of the unit square under "
        "the curve of NAcc against BAcc as the offset varies. An offset is in the unit of a method's own scores; the "
        "curve depends on no unit.\n"
        f"Δ NAcc by offset: what {base} gains with the offset that keeps as much BAcc as the method has. It and what "
        f"is beyond it have a dash where the method has, in some draw, more BAcc than {base} reaches with any offset. "
        "Share: Δ NAcc by offset in percent of the method's Δ NAcc, given where that is clearly above 0; above 100 % "
        "the offset reaches more than the method does. The offset is fitted on test images, so it is what an offset "
        "could reach, not a method.\n"
        f"Intervals are over draws and conditional on this one backbone. {RANDOM_BASE}."
    )
