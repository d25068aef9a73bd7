"""The methods that an analysis takes up: with their defaults, and in every variant that they declare."""

from collections.abc import Collection, Iterable

from fscil_bench.evaluate import Arena
from fscil_bench.leaderboard.measuring import tasks_for
from fscil_bench.progress import note
from fscil_bench.registry import Configured, configure, load_method
from fscil_bench.settings import labelled


def in_all_variants(arena: Arena, names: Iterable[str], required: Collection[str]) -> dict[str, Configured]:
    """By label. A method that needs another backbone is left out, and said so, unless it is required."""
    wanted = list(dict.fromkeys(names))
    found = {}
    for task in tasks_for(wanted, arena.protocol.name, [arena.backbone]):
        found[labelled(task.method, task.settings)] = configure(task.method, task.dataset, task.settings)
    for name in wanted:
        if name not in found:
            if name in required:
                arena.backbone.require_suits(name, load_method(name).objective)
            note(f"Left out: method {name} needs a backbone of another objective than {arena.backbone.id}")
    return found
