"""Rows, each a method on a backbone, by session: from records where current ones hold the draws, measured where not."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.errors import UsageError
from fscil_bench.evaluate import Arena
from fscil_bench.files import exclusive, require_writable
from fscil_bench.leaderboard.comparison import is_current, rows_for
from fscil_bench.leaderboard.rows import Row
from fscil_bench.protocols import FEW, MANY
from fscil_bench.registry import Configured, configure, require_method
from fscil_bench.results import as_record, lock_path, record_path, store

Counter = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True)
class Wanted:
    """A method with its defaults, on a backbone."""

    configured: Configured
    arena: Arena
    label: str

    def draw_names(self, count: int | None) -> list[str]:
        """The first `count` random draws, or those of a full row."""
        full = FEW if "fscil" in self.configured.method.costly else MANY
        return [f"random:{seed}" for seed in range(count or full)]


@dataclass(frozen=True)
class Series:
    """A row with just the draws that were asked for, and where its numbers come from."""

    label: str
    row: Row
    source: str  # "shipped record", "own record" or "measured"


def split_row(text: str) -> tuple[str, str | None]:
    """METHOD or METHOD@BACKBONE as its two parts; what the method is called is checked, the backbone is not."""
    method, at, backbone = text.partition("@")
    if not method or (at and not backbone):
        raise UsageError(f"row '{text}': expected METHOD or METHOD@BACKBONE")
    require_method(method)
    return method, backbone or None


def find_row(text: str, dataset: str, backbone: str | None) -> tuple[Configured, Arena]:
    """What METHOD or METHOD@BACKBONE stands for; METHOD alone is on `backbone`, else on its default."""
    method, named = split_row(text)
    configured = configure(method, dataset)
    return configured, Arena(dataset, named or backbone, objective=configured.method.objective)


def find_rows(texts: Sequence[str], dataset: str, backbone: str | None) -> list[Wanted]:
    """All of them, named by the method alone where one backbone serves all."""
    found = [find_row(text, dataset, backbone) for text in texts]
    several = len({arena.backbone.id for _, arena in found}) > 1
    rows: dict[str, Wanted] = {}
    for configured, arena in found:
        full = f"{configured.name}@{arena.backbone.id}"
        if full in rows:  # twice the same, or two backbones that could not be told apart by their ids
            raise UsageError(f"two rows are {full}: give each method on each backbone once")
        rows[full] = Wanted(configured, arena, full if several else configured.name)
    return list(rows.values())


def load_series(
    wanted: Sequence[Wanted], draws: int | None, runs: Path, counter: Counter
) -> tuple[list[Series], list[str]]:
    """Every row over its draws, and one line for each record that had to be left out."""
    backbones = {row.arena.backbone.folder: row.arena for row in wanted}
    methods = [row.configured.name for row in wanted]
    loaded = {place: rows_for(arena.protocol, arena.backbone, methods, runs) for place, arena in backbones.items()}
    problems = dict.fromkeys(problem for each in loaded.values() for problem in each.problems)
    found: list[Series] = []
    for row in wanted:
        names = row.draw_names(draws)
        known = loaded[row.arena.backbone.folder].rows
        fit = [old for old in known if old.method == row.configured.name and _serves(old, names)]
        if fit:
            found.append(Series(row.label, _cut(fit[0], names), "own record" if fit[0].own else "shipped record"))
            continue
        with counter(f"{row.label}, draws", len(names)) as advance:
            measured = _measure(row, names, runs if draws is None else None, advance)
        found.append(Series(row.label, _cut(measured, names), "measured"))
    return found, list(problems)


def _serves(row: Row, names: Sequence[str]) -> bool:
    """Whether a record is of the method's defaults, of the present code, and has all the draws."""
    return is_current(row) and not row.user_settings and set(names) <= set(row.draws)


def _measure(wanted: Wanted, names: Sequence[str], runs: Path | None, advance: Callable[[int], None]) -> Row:
    """Measured now; recorded under `runs`, if given, as `compare` would.

    A row of fewer draws is not recorded: it could take the place of a full one.
    """
    arena, configured = wanted.arena, wanted.configured
    if runs is None:
        return Row(Path(), as_record(arena.run(configured, arena.draws(names), advance)), own=True)
    require_writable(runs, "--runs")
    place = record_path(runs, configured, arena.protocol, arena.backbone)
    with exclusive(lock_path(place), f"writing {place.name}"):
        chosen, _ = arena.full_draws(costly="fscil" in configured.method.costly)
        result = arena.run(configured, chosen, advance)
        store(place, result)
    return Row(place, as_record(result), own=True)


def _cut(row: Row, names: Sequence[str]) -> Row:
    """The row with these of its draws alone, in this order: the same draws for every row, whatever records hold."""
    places = [row.draws.index(name) for name in names]
    by_session = row.record["draws"]["metrics"]["by_session"]
    kept = {metric: [lines[i] for i in places] for metric, lines in by_session.items()}
    return Row(row.path, {**row.record, "draws": {"names": list(names), "metrics": {"by_session": kept}}}, row.own)
