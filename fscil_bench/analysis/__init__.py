"""Closer than a leaderboard: settings over a grid, rows by session, offsets on scores, prototypes and their oracles."""

from fscil_bench.errors import UsageError
from fscil_bench.protocols import Protocol


def require_sessions(protocol: Protocol) -> None:
    """All of it is about new classes that come in sessions."""
    if not protocol.sessions:
        raise UsageError(f"{protocol.name} has no sessions: choose another dataset")
