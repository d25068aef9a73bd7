"""A protocol on a bank: which rows are base, which are tested when, and which images a draw gives each new class."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fscil_bench.banks import Bank
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocols import Protocol

Rows = npt.NDArray[np.int64]


class UnresolvedDrawError(UsageError):
    """The standard draw names images that cannot be found here."""


@dataclass(frozen=True)
class Draw:
    """The labelled images that the new classes come with."""

    name: str
    rows: Rows  # [new classes, shot], rows of the bank


class Split:
    """The rows of a bank under a protocol."""

    def __init__(self, protocol: Protocol, bank: Bank) -> None:
        missing = sorted(set(protocol.classes) - set(bank.classes))
        if missing:
            raise FscilError(f"the bank of {bank.dataset} lacks classes of protocol {protocol.name}: {missing[:3]}")
        self.protocol = protocol
        self.bank = bank
        position = np.full(len(bank.classes), -1)
        position[[bank.classes.index(name) for name in protocol.classes]] = np.arange(len(protocol.classes))
        self.targets: Rows = position[bank.labels]  # class number under the protocol, -1 outside it
        in_class_order = np.argsort(self.targets, kind="stable")  # the bank is sorted by id within a class
        used = in_class_order[self.targets[in_class_order] >= 0]
        self.train_rows: Rows = used[~bank.is_test[used]]
        self.test_rows: Rows = used[bank.is_test[used]]
        self.base_rows: Rows = self.train_rows[self.targets[self.train_rows] < protocol.base]
        counts = np.bincount(self.targets[self.test_rows], minlength=len(protocol.classes))
        if (counts == 0).any():
            name = protocol.classes[int(np.argmin(counts))]
            raise FscilError(
                f"class {name} has no test images in the bank: `fscil-bench data verify` lists what is missing"
            )

    @cached_property
    def train_of(self) -> list[Rows]:
        """The training rows of each class."""
        counts = np.bincount(self.targets[self.train_rows], minlength=len(self.protocol.classes))
        return np.split(self.train_rows, np.cumsum(counts)[:-1])

    def random_draw(self, seed: int) -> Draw:
        """`shot` images of each new class: the first of its ids in order, permuted by (seed, class number)."""
        shot = self.protocol.shot
        rows = np.empty((len(self.protocol.new_classes), shot), dtype=np.int64)
        for i, number in enumerate(self.protocol.new_classes):
            of_class = self.train_of[number]
            if len(of_class) < shot:
                raise UsageError(
                    f"class {self.protocol.classes[number]} has {len(of_class)} training images, {shot} are needed: "
                    "`fscil-bench data verify` lists what is missing"
                )
            bits = np.random.PCG64(np.random.SeedSequence([seed, number]))
            rows[i] = of_class[np.random.Generator(bits).permutation(len(of_class))[:shot]]
        return Draw(f"random:{seed}", rows)

    def standard_draw(self, official_train_ids: Callable[[], Sequence[str] | None]) -> Draw:
        """The literature's one fixed draw; `official_train_ids` explains indices into the official archive."""
        wanted = self.protocol.support
        if self.protocol.support_key == "official-train-index":
            listed = official_train_ids()
            if listed is None:
                raise UnresolvedDrawError(
                    f"the standard draw of {self.protocol.name} lists indices into the official archive: pass "
                    "--data-root with that archive to resolve it"
                )
            wanted = tuple(tuple(listed[i] for i in images) for images in wanted)
        row_of = {image: row for row, image in enumerate(self.bank.ids)}
        rows = np.empty((len(wanted), self.protocol.shot), dtype=np.int64)
        for i, (number, images) in enumerate(zip(self.protocol.new_classes, wanted, strict=True)):
            name = self.protocol.classes[number]
            for k, image in enumerate(images):
                row = row_of.get(image)
                if row is None:
                    raise UnresolvedDrawError(f"the standard draw needs image {image}, which the bank does not hold")
                if self.targets[row] != number or self.bank.is_test[row]:
                    raise FscilError(f"the standard draw gives class {name} the image {image}, no training image of it")
                rows[i, k] = row
        return Draw("standard", rows)
