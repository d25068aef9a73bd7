"""What records say of their methods, in line with what the methods declare now. Numbers and checksums stay."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fscil_bench.errors import FscilError
from fscil_bench.files import plain, write_json
from fscil_bench.leaderboard.rows import Row, load_rows
from fscil_bench.registry import configure


def declare_anew(records: Path) -> list[Path]:
    """Rewrite the records whose methods declare other facts than they say; the paths of those written.

    A record of settings that are no longer a method's defaults is left as it is: its numbers are of what it says.
    """
    loaded = load_rows([(records, False)])
    written = []
    for row in (*loaded.rows, *loaded.episodes):
        facts = _declared(row)
        if facts is None or facts.items() <= row.record["method"].items():
            continue
        write_json(row.path, {**row.record, "method": {**row.record["method"], **facts}})
        written.append(row.path)
    return written


def _declared(row: Row) -> Mapping[str, Any] | None:
    """What the method declares at the record's settings, or nothing if it has none such."""
    try:
        configured = configure(row.method, row.protocol, row.given)
    except FscilError:
        return None
    if plain(configured.settings) != row.record["method"]["settings"]:
        return None
    return {
        "origins": configured.origins,
        "exemplars": configured.method.exemplars,
        "privileges": list(configured.method.privileges),
        "deviations": list(configured.deviations),
        "baseline": configured.baseline,
    }
