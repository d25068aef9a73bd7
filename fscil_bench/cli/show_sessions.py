"""How `analyze sessions` shows rows: the last session, and the step from each row to the next."""

from fscil_bench.analysis.sessions_report import ROW_COLUMNS, STEP_COLUMNS, SessionsReport
from fscil_bench.cli.render import show_notes, show_table
from fscil_bench.metrics import DEFINITIONS
from fscil_bench.words import RANDOM_BASE


def show_sessions(report: SessionsReport) -> None:
    name = report.protocol.name
    title = f"{name}, session {report.protocol.sessions}: mean over random draws ± half of its 95 % interval (sd)"
    show_table(title, ROW_COLUMNS, report.rows(), left=3)
    if report.steps:
        show_table(f"{name}, session {report.protocol.sessions}: step by step", STEP_COLUMNS, report.step_rows())
        show_notes(
            [
                "Steps are paired over the same draws of the same bank; p: Wilcoxon signed-rank, corrected after Holm "
                "over all tests shown. Not paired: a plain difference of means, without a test, since one backbone a "
                "row says nothing of how much backbones vary. One draw: the same for both rows, but nothing to test on."
            ]
        )
    show_notes(
        [
            *(DEFINITIONS[metric] for metric in ("avg_acc", "base_acc", "new_acc", "hmean")),  # HMean rests on BAcc
            "Intervals are over draws and conditional on the one backbone of their row.",
            *([RANDOM_BASE] if any(one.row.record["method"]["sampled"] for one in report.series) else ()),
            *map(str.strip, report.caveats()),
        ]
    )
