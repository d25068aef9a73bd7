"""Every registered method keeps the contract."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fscil_bench import registry
from fscil_bench.method import PrototypeMethod
from fscil_bench.registry import Configured, load_method, method_names
from fscil_bench.settings import as_text
from fscil_bench.testing import check_method

COMPOSED = [
    "simteen+teen",
    "fact+teen",
    "protonet+bias",
    "teen+bias",
    "tukey-protonet+teen",
    "fecam+teen",
    "oracle-prototypes+teen",
]
SMALL = {
    "ranpac": {"width": "40", "samples": "30", "episode_samples": "20"},
    "lr": {"samples": "20"},
    "tukey-lr": {"samples": "20"},
}
SMALL |= {"dc-lr": {"samples": "20", "episode_samples": "40"}}


@pytest.mark.parametrize("dataset", ["cifar100", "cub200", "miniimagenet"])
@pytest.mark.parametrize("name", [*method_names(), *COMPOSED])
def test_method_keeps_the_contract(name, dataset):
    check_method(name, dataset, SMALL.get(name))


@pytest.mark.parametrize("name", method_names())
def test_variants_keep_the_contract(name):
    for variant in load_method(name).variants:
        given = {key: as_text(value) for key, value in variant.items()}
        check_method(name, "cifar100", {**SMALL.get(name, {}), **given})


@pytest.mark.parametrize("name", method_names())
def test_costly_names_kinds_of_rows(name):
    costly = load_method(name).costly
    assert isinstance(costly, tuple)
    assert set(costly) <= {"fscil", "fsl"}


@dataclass(kw_only=True)
class InPlace(PrototypeMethod):
    """Keeps its prototypes in a list that forks share."""

    def fit_base(self, base):
        super().fit_base(base)
        self.new = []

    def add_session(self, support):
        self.new.append(support.features.mean(dim=-2))


@dataclass(kw_only=True)
class Transductive(PrototypeMethod):
    """Centres queries on their own mean."""

    def scores(self, queries: Tensor) -> Tensor:
        return super().scores(queries - queries.mean(dim=0))


@dataclass(kw_only=True)
class TransductiveRows(PrototypeMethod):
    """Centres queries on their own mean, once."""

    def encode(self, queries: Tensor) -> Tensor:
        return queries - queries.mean(dim=0)


@dataclass(kw_only=True)
class Late(PrototypeMethod):
    """Does with queries what it learned in the sessions, though they are encoded before these."""

    def encode(self, queries: Tensor) -> Tensor:
        return queries + len(self.new)


@dataclass(kw_only=True)
class Dice(PrototypeMethod):
    """Adds noise to the queries."""

    batched = False
    sampled = True

    def encode(self, queries: Tensor) -> Tensor:
        return queries + 1e-12 * torch.randn(queries.shape[-1], generator=self.generator, dtype=queries.dtype)


@dataclass(kw_only=True)
class Restless(PrototypeMethod):
    """Declares itself classwise, but its base scores change with every session."""

    def add_session(self, support):
        super().add_session(support)
        self.base = self.base + 1


@dataclass(kw_only=True)
class Hoarder(PrototypeMethod):
    """Keeps images and does not say so."""

    def fit_base(self, base):
        super().fit_base(base)
        self.seen = {}

    def add_session(self, support):
        super().add_session(support)
        self.seen = {**self.seen, len(self.new): [support]}


@dataclass(kw_only=True)
class FirstShot(PrototypeMethod):
    """Takes the first image of a class for all of it."""

    def prototypes(self, support):
        return support.features[..., 0, :]


@dataclass(kw_only=True)
class ByNumber(PrototypeMethod):
    """Prefers classes that come early."""

    def adjust(self, scores, n_base):
        return scores - 0.01 * torch.arange(scores.shape[-1])


@dataclass(kw_only=True)
class Greedy(PrototypeMethod):
    """Wants all training images without the privilege."""

    def prototypes(self, support):
        return torch.stack([images.mean(dim=0) for images in support.all_features])


@dataclass(kw_only=True)
class Shy(PrototypeMethod):
    """Says that it is of no use in episodes, and takes them all the same."""

    episodes = False


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (FirstShot, "order of support images"),
        (Hoarder, "keeps 4 images of a class for later sessions and declares 0"),
        (ByNumber, "order of base classes"),
        (Shy, "of no use in episodes"),
        (InPlace, "forks share state"),
        (Transductive, "queries are batched"),
        (TransductiveRows, "queries are batched"),
        (Late, "encode depends on the sessions"),
        (Dice, "encode draws random numbers"),
        (Restless, "a new class changes old scores"),
    ],
)
def test_the_contract_catches(broken, reason, monkeypatch):
    monkeypatch.setattr("fscil_bench.testing.configure", lambda *_: Configured("broken", broken(), {}, {}))
    with pytest.raises(AssertionError, match=reason):
        check_method("broken")


def test_only_the_privilege_brings_all_training_images(monkeypatch):
    monkeypatch.setattr("fscil_bench.testing.configure", lambda *_: Configured("greedy", Greedy(), {}, {}))
    with pytest.raises(RuntimeError, match="non-empty"):
        check_method("greedy")


def test_built_in_methods_are_found_by_entry_point():
    assert {"protonet", "teen", "simteen"} <= set(registry.method_names())
