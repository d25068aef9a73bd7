"""From names to a result: protocol, backbone, bank, draws and method brought together."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fscil_bench import datasets
from fscil_bench.backbones.store import Backbone, default_backbone, find_backbone
from fscil_bench.banks import open_bank
from fscil_bench.episode_results import EpisodeResult
from fscil_bench.episodes import play
from fscil_bench.errors import UsageError, unknown_name
from fscil_bench.protocols import FEW, MANY, Protocol, load_protocol, protocol_names
from fscil_bench.protocols.draws import Draw, Split, UnresolvedDrawError
from fscil_bench.protocols.episodes import Plan
from fscil_bench.records import STANDARD, Kind
from fscil_bench.registry import Configured
from fscil_bench.results import Result, score
from fscil_bench.runner import walk


class Arena:
    """One dataset on one backbone: what methods are compared in."""

    def __init__(
        self,
        dataset: str,
        backbone: str | None = None,
        data_root: Path | None = None,
        *,
        objective: str | None = None,
    ) -> None:
        """`backbone` is an id or a folder; without one, the default for methods that need `objective`."""
        self.protocol = load_protocol(dataset)
        self.backbone: Backbone = find_backbone(backbone) if backbone else default_backbone(self.protocol, objective)
        _require_unseen(self.backbone, self.protocol)
        self.split = Split(self.protocol, open_bank(self.backbone, self.protocol.dataset))
        self._data_root = datasets.require_root(data_root) if data_root is not None else datasets.find_root(None)

    def draws(self, names: Iterable[str]) -> list[Draw]:
        """Draws by name: "standard" or "random:SEED"."""
        return [self._draw(name) for name in dict.fromkeys(names)]

    def full_draws(self, *, costly: bool) -> tuple[list[Draw], str]:
        """The draws of a full row: the standard one if there is one and it resolves, and random ones.

        The text says why it did not resolve, if it did not.
        """
        randoms = [self.split.random_draw(seed) for seed in range(FEW if costly else MANY)]
        if not self.protocol.support:
            return randoms, ""
        try:
            return [self._draw(STANDARD), *randoms], ""
        except UnresolvedDrawError as error:
            return randoms, str(error)

    def run(
        self,
        configured: Configured,
        draws: Sequence[Draw],
        advance: Callable[[int], None] = lambda n: None,
        last: int | None = None,
    ) -> Result:
        """The method through all sessions, or those up to `last`."""
        self.require(configured)
        return score(configured, self.backbone, self.split, walk(configured.method, self.split, draws, advance, last))

    def play(
        self, configured: Configured, plan: Plan, advance: Callable[[int], None] = lambda n: None
    ) -> EpisodeResult:
        """Few-shot episodes, on classes that the backbone has not been trained on."""
        self.require(configured, "fsl")
        return EpisodeResult(configured, self.backbone, self.split, play(configured.method, self.split, plan, advance))

    def require(self, configured: Configured, kind: Kind = "fscil") -> None:
        """Fail if a method cannot be measured here; worth asking before long work on another one."""
        if kind == "fscil" and not self.protocol.sessions:
            raise UsageError(f"{self.protocol.name} has no sessions: `fscil-bench fsl` plays few-shot episodes on it")
        if kind == "fsl" and not configured.method.episodes:
            raise UsageError(f"method {configured.name} does not take part in few-shot episodes")
        self.backbone.require_suits(configured.name, configured.method.objective)

    def _draw(self, name: str) -> Draw:
        if name == STANDARD:
            return self.split.standard_draw(self._official_train_ids)
        if found := re.fullmatch(r"random:(\d+)", name):
            return self.split.random_draw(int(found[1]))
        raise unknown_name("draw", name, [STANDARD, "random:SEED"])

    def _official_train_ids(self) -> Sequence[str] | None:
        if self._data_root is None:
            return None
        ids: Sequence[str] | None = datasets.reader(self.protocol.dataset).official_train_ids(self._data_root)
        return ids


def _require_unseen(backbone: Backbone, protocol: Protocol) -> None:
    """Refuse a backbone that was trained on the new classes, or on the test images, of the protocol."""
    trained_for = backbone.card["dataset"]
    if trained_for not in protocol_names() or backbone.card["epochs"] == 0:
        return
    other = load_protocol(trained_for)
    if other.dataset != protocol.dataset:
        return
    seen = set(other.classes[: other.base]) & {protocol.classes[number] for number in protocol.new_classes}
    if seen or (protocol.held_out is not None and other.held_out != protocol.held_out):
        what = f"{len(seen)} new classes" if seen else "test images"
        raise UsageError(
            f"backbone {backbone.id} was trained on {what} of {protocol.name}, so numbers there would mean nothing: "
            f"`fscil-bench backbone train --dataset {protocol.name}` makes one that fits"
        )
