"""Rows of a leaderboard, read from records. A record that does not fit is named and left out, never mixed in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fscil_bench.backbones.store import Backbone, bank_name, list_backbones
from fscil_bench.errors import FscilError
from fscil_bench.metrics import Metrics, Summary, summarise
from fscil_bench.protocols import FEW, MANY, full_episodes, load_protocol
from fscil_bench.protocols.episodes import QUERIES, SEED, SHOTS, WAYS
from fscil_bench.records import Kind, read_record, unpack_counts
from fscil_bench.settings import as_text, labelled
from fscil_bench.words import REFERENCE, memory_and_privileges

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One method with its settings, on one protocol and one bank."""

    path: Path
    record: dict[str, Any] = field(repr=False)
    own: bool = False  # the user's, not the leaderboard's

    @property
    def method(self) -> str:
        return str(self.record["method"]["name"])

    @property
    def user_settings(self) -> dict[str, Any]:
        """The settings that were not left at their defaults."""
        method = self.record["method"]
        return {key: value for key, value in method["settings"].items() if method["origins"][key] == "user"}

    @property
    def given(self) -> dict[str, str]:
        """The same as `--set` takes them."""
        return {key: as_text(value) for key, value in self.user_settings.items()}

    @property
    def label(self) -> str:
        return labelled(self.method, self.user_settings)

    @property
    def kind(self) -> Kind:
        """What was measured: sessions (fscil) or few-shot episodes (fsl)."""
        return "fscil"

    @property
    def protocol(self) -> str:
        return str(self.record["protocol"]["name"])

    @property
    def backbone(self) -> str:
        return str(self.record["backbone"]["id"])

    @property
    def bank(self) -> str:
        return str(self.record["backbone"]["bank_sha256"])

    @property
    def failed(self) -> str | None:
        """Why the method did not get through, if it did not."""
        return str(self.record["error"]) if self.record["kind"] == "failed" else None

    @property
    def draws(self) -> list[str]:
        return [] if self.failed else list(self.record["draws"]["names"])

    @property
    def complete(self) -> bool:
        """Whether it holds all the random draws of a full row."""
        wanted = FEW if self.record["method"]["costly"] else MANY
        return {f"random:{seed}" for seed in range(wanted)} <= set(self.draws)

    @property
    def privileges(self) -> list[str]:
        """What the method uses beyond plain FSCIL."""
        return list(self.record["method"]["privileges"])

    @property
    def memory(self) -> str:
        """The same as text for a table, with the number of exemplars."""
        return memory_and_privileges(self.privileges, self.record["method"]["exemplars"])

    @property
    def is_reference(self) -> bool:
        """Whether it shows what could be reached, and is no competitor of the others."""
        return REFERENCE in self.privileges

    @property
    def shown(self) -> str:
        """The label with what a reader must know before comparing it."""
        marks = {
            "reference": self.is_reference,
            "incomplete": not (self.complete or self.failed),
            "yours": self.own,
        }
        return " ".join([self.label, *(f"({mark})" for mark, holds in marks.items() if holds)])

    @property
    def facts(self) -> dict[str, Any]:
        """What JSON says of a row beside its numbers."""
        method, backbone = self.record["method"], self.record["backbone"]
        return {
            "method": self.method,
            "label": self.label,
            "settings": method["settings"],
            "privileges": self.privileges,
            "exemplars": method["exemplars"],
            "backbone": self.backbone,
            "pretraining": backbone["pretraining"],
            "overlap": backbone["overlap"],
            "own": self.own,
            "complete": self.complete,
            "failed": self.failed,
        }

    @property
    def seen_new_classes(self) -> bool:
        """Whether the backbone's pretraining has, or may have, seen new classes or test images."""
        return str(self.record["backbone"]["overlap"]["kind"]) != "none"

    @property
    def identity(self) -> str:
        """Whose numbers these are: the same for sessions and for few-shot episodes."""
        settings = sorted(self.record["method"]["settings"].items())
        return repr((self.method, settings, self.protocol, self.bank))

    @property
    def numbers(self) -> Any:
        """What tells two measurements apart."""
        return self.failed or [self.headline(metric).tolist() for metric in ("avg_acc", "hmean")]

    @cached_property
    def _headline(self) -> dict[str, Values]:
        by_session = self.record["draws"]["metrics"]["by_session"]
        return Metrics({metric: self.by_session(metric) for metric in by_session}).headline

    def headline(self, metric: str) -> Values:
        """One number for each random draw."""
        return self._headline[metric]

    def by_session(self, metric: str) -> Values:
        """[draws, sessions]; NaN where not defined."""
        return _array(self.record["draws"]["metrics"]["by_session"][metric])

    def standard(self, metric: str) -> float | None:
        """The last session's number on the standard draw, if it was measured."""
        standard = None if self.failed else self.record["standard"]
        return None if standard is None else standard["headline"][metric]


@dataclass(frozen=True)
class EpisodeRow(Row):
    """The few-shot episodes of one method with its settings, on one protocol and one bank."""

    @property
    def kind(self) -> Kind:
        return "fsl"

    @property
    def plan(self) -> dict[str, int]:
        """The number of episodes, their ways and queries, and the seed."""
        return {} if self.failed else dict(self.record["episodes"])

    @property
    def shots(self) -> tuple[int, ...]:
        return () if self.failed else tuple(map(int, self.record["shots"]))

    @property
    def complete(self) -> bool:
        """Whether it holds all the episodes of a full row."""
        standard = {"ways": WAYS, "queries": QUERIES, "seed": SEED}
        enough = self.plan.get("count", 0) >= full_episodes(costly=self.record["method"]["costly"])
        return enough and standard.items() <= self.plan.items() and set(SHOTS) <= set(self.shots)

    @property
    def numbers(self) -> Any:
        return self.failed or [self.plan, {shots: self.record["shots"][str(shots)]["right"] for shots in self.shots}]

    def right(self, shots: int) -> npt.NDArray[np.uint16]:
        """The number of right answers in each episode."""
        return unpack_counts(self.record["shots"][str(shots)]["right"], self.plan["ways"] * self.plan["queries"])

    def accuracy(self, shots: int) -> Values:
        """Percent of right answers in each episode."""
        return 100 * self.right(shots).astype(np.float64) / (self.plan["ways"] * self.plan["queries"])

    def summary(self, shots: int) -> Summary | None:
        return summarise(self.accuracy(shots)) if shots in self.shots else None


@dataclass(frozen=True)
class Loaded:
    rows: list[Row]
    problems: list[str]  # one line for each record left out
    episodes: list[EpisodeRow] = field(default_factory=list)


def shipped_root() -> Path:
    """The leaderboard that comes with the package."""
    return Path(str(resources.files("fscil_bench_leaderboards")))


def load_rows(
    roots: Iterable[tuple[Path, bool]], outside: Sequence[Backbone] = (), protocol: str | None = None
) -> Loaded:
    """All rows under some roots, or those of one protocol; an own copy of a known row is dropped.

    With each root goes whether its rows are the user's own. `outside` are backbones that rows may be of besides those
    in the store.
    """
    banks: dict[tuple[str, str], set[str]] = {}
    for backbone in (*list_backbones(), *outside):
        for file, digest in backbone.card["files"].items():
            banks.setdefault((backbone.id, file), set()).add(digest)
    rows: dict[str, Row] = {}
    problems = []
    for root, own in roots:
        place = f"{protocol or '*'}/*"
        for path in sorted(path for kind in ("fscil", "fsl", "failed") for path in root.glob(f"{place}/*.{kind}.json")):
            try:
                record = read_record(path)
                of_episodes = "fsl" in (record["kind"], record.get("of"))
                row = (EpisodeRow if of_episodes else Row)(path, record, own)
                _require_current(row, banks)
                rows.setdefault(repr((of_episodes, row.identity, row.numbers)), row)
            except FscilError as error:
                problems.append(str(error))
    episodes = [row for row in rows.values() if isinstance(row, EpisodeRow)]
    return Loaded([row for row in rows.values() if not isinstance(row, EpisodeRow)], problems, episodes)


def ranked(rows: Sequence[Row], metric: str = "hmean") -> list[Row]:
    """Best first, then incomplete rows, references, rows that failed; pretraining that has seen new classes last."""
    lower_is_better = metric == "pd"

    def key(row: Row) -> tuple[Any, ...]:
        mean = 0.0 if row.failed or not row.draws else float(np.mean(row.headline(metric)))
        return (
            row.seen_new_classes,
            bool(row.failed),
            row.is_reference,
            not row.complete,
            mean if lower_is_better else -mean,
            row_key(row),
        )

    return sorted(rows, key=key)


def row_key(row: Row) -> tuple[str, ...]:
    return (row.protocol, row.backbone, row.label, str(row.own))


def _require_current(row: Row, banks: dict[tuple[str, str], set[str]]) -> None:
    """Refuse a record of another split, or of another bank under an installed backbone's name."""
    protocol = load_protocol(row.protocol)
    if row.record["protocol"]["sha256"] != protocol.sha256:
        raise FscilError(f"{row.path} was measured on another {row.protocol} split (checksum differs): measure it anew")
    known = banks.get((row.backbone, bank_name(protocol.dataset)))
    if known is not None and row.bank not in known:
        raise FscilError(
            f"{row.path} was measured on another bank of {row.backbone} (checksum differs): measure it anew"
        )


def _array(values: list[Any]) -> Values:
    return np.array(
        [[np.nan if v is None else v for v in line] if isinstance(line, list) else line for line in values], float
    )
