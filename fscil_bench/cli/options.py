"""What several commands share: the range of --draws, and which method differences are taken from."""

from collections.abc import Mapping

import click

from fscil_bench.errors import UsageError
from fscil_bench.progress import note
from fscil_bench.registry import Configured, configure, require_method

DRAWS = click.IntRange(1, 10_000)


def baseline_of(configured: Configured, named: str | None, dataset: str, given: Mapping[str, str]) -> Configured | None:
    """The method named, else the one that `configured` builds on, if it is there; of X+Y that is X as it was given."""
    if named is not None:
        return configure(named, dataset)
    host, _, added = configured.name.rpartition("+")
    if host:
        return configure(host, dataset, {key: v for key, v in given.items() if not key.startswith(f"{added}.")})
    if configured.baseline is None:
        return None
    try:
        require_method(configured.baseline)
    except UsageError as error:
        note(f"Note: no differences are shown: {error}")
        return None
    return configure(configured.baseline, dataset)
