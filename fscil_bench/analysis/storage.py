"""What storing a bank's features in fewer bits does to the numbers of every method."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fscil_bench.banks import decode, encode
from fscil_bench.evaluate import Arena
from fscil_bench.metrics import SHORT
from fscil_bench.protocols.draws import Split
from fscil_bench.registry import configure


@dataclass(frozen=True)
class Effect:
    """A method's last-session numbers on rounded features minus those on the bank's own, means over draws."""

    method: str
    change: dict[str, float]

    @property
    def largest(self) -> float:
        return max(map(abs, self.change.values()))


def storage_effects(arena: Arena, methods: Sequence[str], storage: str, draws: int) -> Iterator[Effect]:
    """The effect of `storage` on each method, over the same random draws and random numbers."""
    bank = arena.split.bank
    own = arena.split
    rounded = Split(arena.protocol, replace(bank, features=decode(encode(bank.features, storage))))
    chosen = arena.draws(f"random:{seed}" for seed in range(draws))
    for name in methods:
        numbers = []
        for split in (own, rounded):
            arena.split = split
            numbers.append(arena.run(configure(name, arena.protocol.name), chosen).metrics.headline)
        arena.split = own
        before, after = numbers
        yield Effect(name, {metric: float((after[metric] - before[metric]).mean()) for metric in SHORT})
