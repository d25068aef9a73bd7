"""Recorded numbers as pandas tables, for statistics and plots of your own.

from fscil_bench.frames import sessions
sessions("cifar100").query("session == 8").groupby("method").hmean.describe()
"""

from pathlib import Path

import pandas as pd

from fscil_bench.leaderboard.rows import Row, load_rows, shipped_root
from fscil_bench.metrics import SHORT
from fscil_bench.protocols import load_protocol


def sessions(dataset: str, runs: Path | str = "runs") -> pd.DataFrame:
    """Every number by session and draw, a line each: of the shipped records, and of your own under `runs`.

    Columns: method (with what was changed), backbone, bank_sha256, own, draw, session, then the metrics in percent, NaN
    where one is not defined. Only lines of one bank and the same draw may be paired.
    """
    roots = [(shipped_root() / "records", False), (Path(runs), True)]
    rows = load_rows(roots, protocol=load_protocol(dataset).name).rows
    return pd.concat([_frame(row) for row in rows if not row.failed], ignore_index=True)


def _frame(row: Row) -> pd.DataFrame:
    values = {metric: row.by_session(metric) for metric in SHORT}  # [draws, sessions]
    count = next(iter(values.values())).shape[1]
    frame = pd.DataFrame({metric: table.ravel() for metric, table in values.items()})
    frame.insert(0, "session", list(range(count)) * len(row.draws))
    frame.insert(0, "draw", [name for name in row.draws for _ in range(count)])
    for name, value in (("own", row.own), ("bank_sha256", row.bank), ("backbone", row.backbone), ("method", row.label)):
        frame.insert(0, name, value)
    return frame
