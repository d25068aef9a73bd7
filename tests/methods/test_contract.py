"""Every registered method keeps the contract."""

from dataclasses import dataclass

import pytest
from torch import Tensor

from fscil_bench import registry
from fscil_bench.method import PrototypeMethod
from fscil_bench.registry import Configured, method_names
from fscil_bench.testing import check_method


@pytest.mark.parametrize("dataset", ["cifar100", "cub200", "miniimagenet"])
@pytest.mark.parametrize("name", [*method_names(), "simteen+teen"])
def test_method_keeps_the_contract(name, dataset):
    check_method(name, dataset)


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
class Restless(PrototypeMethod):
    """Declares itself classwise, but its base scores change with every session."""

    def add_session(self, support):
        super().add_session(support)
        self.base = self.base + 1


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (InPlace, "forks share state"),
        (Transductive, "queries are batched"),
        (Restless, "a new class changes old scores"),
    ],
)
def test_the_contract_catches(broken, reason, monkeypatch):
    monkeypatch.setattr("fscil_bench.testing.configure", lambda *_: Configured("broken", broken(), {}, {}))
    with pytest.raises(AssertionError, match=reason):
        check_method("broken")


def test_built_in_methods_are_found_by_entry_point():
    assert {"protonet", "teen", "simteen"} <= set(registry.method_names())
