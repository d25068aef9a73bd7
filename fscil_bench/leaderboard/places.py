"""Where the leaderboard is that a command means."""

from pathlib import Path

from fscil_bench.errors import UsageError
from fscil_bench.leaderboard.rows import shipped_root

LOCAL = Path("leaderboards")


def leaderboard_root(given: Path | None) -> Path:
    """The folder given, else ./leaderboards if it holds records, else the one that comes with the package."""
    if given is not None:
        if not given.is_dir():
            raise UsageError(
                f"no leaderboard folder at {given}: name one that `fscil-bench leaderboard update` has written, or "
                "leave --root out"
            )
        return given
    return LOCAL if (LOCAL / "records").is_dir() else shipped_root()
