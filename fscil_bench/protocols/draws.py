"""A protocol on a bank: which rows are base, which are tested when, and which images a draw gives each new class."""

import typing
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


class Labelled(typing.Protocol):
    """A bank or a set of images: train before test, then by class, then by id."""

    @property
    def dataset(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> Rows: ...
    @property
    def is_test(self) -> npt.NDArray[np.bool_]: ...


@dataclass(frozen=True)
class Roles:
    """What a protocol uses images for: rows in the order of its classes, then of ids."""

    targets: Rows  # of all images: class number under the protocol, -1 outside it
    train: Rows
    test: Rows


def roles(protocol: Protocol, images: Labelled) -> Roles:
    """The dataset's training and test images of the protocol's classes, or training images of both kinds.

    Held-out images are the last `per_class` of a class's training ids in order, permuted by (seed, class number); the
    dataset's own test images are not used then.
    """
    missing = sorted(set(protocol.classes) - set(images.classes))
    if missing:
        raise FscilError(f"the bank of {images.dataset} lacks classes of protocol {protocol.name}: {missing[:3]}")
    position = np.full(len(images.classes), -1)
    position[[images.classes.index(name) for name in protocol.classes]] = np.arange(len(protocol.classes))
    targets: Rows = position[images.labels]
    in_class_order = np.argsort(targets, kind="stable")  # sorted by id within a class to begin with
    used = in_class_order[targets[in_class_order] >= 0]
    train, test = used[~images.is_test[used]], used[images.is_test[used]]
    if protocol.held_out is not None:
        kept, held = [], []
        count = protocol.held_out.per_class
        for number, rows in enumerate(_by_class(protocol, targets, train)):
            if len(rows) <= count:
                raise UsageError(
                    f"class {protocol.classes[number]} has {len(rows)} training images, of which {protocol.name} holds "
                    f"out {count}: `fscil-bench data verify` lists what is missing"
                )
            permuted = rows[_permutation(protocol.held_out.seed, number, len(rows))]
            kept.append(np.sort(permuted[:-count]))
            held.append(np.sort(permuted[-count:]))
        train, test = np.concatenate(kept), np.concatenate(held)
    return Roles(targets, train, test)


class Split:
    """The rows of a bank under a protocol."""

    def __init__(self, protocol: Protocol, bank: Bank) -> None:
        self.protocol = protocol
        self.bank = bank
        found = roles(protocol, bank)
        self.targets: Rows = found.targets
        self.train_rows: Rows = found.train
        self.test_rows: Rows = found.test
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
        return _by_class(self.protocol, self.targets, self.train_rows)

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
            rows[i] = of_class[_permutation(seed, number, len(of_class))[:shot]]
        return Draw(f"random:{seed}", rows)

    def standard_draw(self, official_train_ids: Callable[[], Sequence[str] | None]) -> Draw:
        """The literature's one fixed draw; `official_train_ids` explains indices into the official archive."""
        wanted = self.protocol.support
        if not wanted:
            raise UnresolvedDrawError(
                f"{self.protocol.name} has no standard draw: pass --draws N or --draw random:SEED"
            )
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


def _by_class(protocol: Protocol, targets: Rows, rows: Rows) -> list[Rows]:
    """Rows in class order, apart."""
    counts = np.bincount(targets[rows], minlength=len(protocol.classes))
    return np.split(rows, np.cumsum(counts)[:-1])


def _permutation(seed: int, number: int, size: int) -> Rows:
    bits = np.random.PCG64(np.random.SeedSequence([seed, number]))
    return np.random.Generator(bits).permutation(size)
