"""The contract of a method as a test: what the harness relies on, for built-ins and for your own.

from fscil_bench.testing import check_method

def test_contract():
    check_method("my-method")
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fscil_bench.errors import UsageError
from fscil_bench.method import Base, Method, Support
from fscil_bench.registry import Configured, configure

Make = Callable[[], Configured]
WAY, SHOT, DIM, BASE_CLASSES, SESSIONS, QUERIES, VIRTUAL = 3, 4, 12, 7, 2, 20, 6


@dataclass(frozen=True)
class Toy:
    """Small random features: base classes, and several draws of two sessions."""

    base: Base
    sessions: tuple[Support, ...]  # features [draws, way, shot, d], and all images of each class
    queries: Tensor


def toy(seed: int = 0, draws: int = 3) -> Toy:
    generator = torch.Generator().manual_seed(seed)

    def features(*shape: int) -> Tensor:
        return torch.rand(*shape, DIM, generator=generator, dtype=torch.float64)

    labels = torch.arange(BASE_CLASSES).repeat_interleave(9)
    base = Base(
        features(len(labels)) + labels[:, None] % 3,
        labels,
        BASE_CLASSES,
        {"weight": features(BASE_CLASSES), "scale": torch.tensor(16.0), "virtual": features(VIRTUAL) - 0.5},
    )
    shots = [features(draws, WAY, SHOT) for _ in range(SESSIONS)]
    queries = features(QUERIES)
    sessions = tuple(Support(s, tuple(features(3 + k) for k in range(WAY))) for s in shots)
    return Toy(base, sessions, queries)


def check_method(name: str, dataset: str = "cifar100", given: Mapping[str, str] | None = None) -> None:
    """Raise AssertionError where the method called `name` breaks the contract; `given` are settings other than default.

    Of a method that takes long, give smaller settings.
    """
    data = toy()
    make = partial(configure, name, dataset, given or {})
    method = make().method
    batched = method.batched
    assert not (batched and method.sampled), "a method that samples takes one draw at a time"
    draws = range(len(data.sessions[0].features))
    one_by_one = torch.stack([_scores(make, data, draw) for draw in draws])
    n_classes = BASE_CLASSES + WAY * SESSIONS
    assert one_by_one.shape == (len(draws), QUERIES, n_classes), f"scores have shape {[*one_by_one.shape]}"
    assert not one_by_one.isnan().any(), "scores are NaN"
    assert torch.equal(one_by_one[0], _scores(make, data, 0)), "the same run twice gives other scores"
    if batched:
        together = _scores(make, data, None)
        assert torch.allclose(one_by_one, together.expand_as(one_by_one)), "draws in a batch influence each other"
    _check_order(make, data)
    _check_queries(make, data)
    _check_encode(make, data)
    _check_forks(make, data)
    _check_memory(make, data)
    _check_episodes(make, data)
    if method.classwise:
        _check_classwise(make, data)


def _fitted(make: Make, base: Base) -> Method:
    method = make().method
    method.generator = torch.Generator().manual_seed(0)
    method.fit_base(base)
    return method


def _scores(make: Make, data: Toy, draw: int | None, sessions: int = SESSIONS) -> Tensor:
    """Scores after some sessions of one draw, or of all at once."""
    method = _fitted(make, data.base)
    rows = method.encode(data.queries)
    for support in data.sessions[:sessions]:
        method.add_session(_given(method, support, draw))
    return method.scores(rows)


def _given(method: Method, support: Support, draw: int | None) -> Support:
    """What the runner would hand this method: all images of a class for that privilege alone."""
    shots = support.features if draw is None else support.features[draw]
    return Support(shots, support.all_features if "all_data" in method.privileges else ())


def _check_order(make: Make, data: Toy) -> None:
    """Closed forms do not depend on the order of images, nor of classes; random numbers may fall otherwise."""
    if make().method.sampled:
        return
    expected = _scores(make, data, 0)
    for what, changed, columns in _reordered(data):
        assert torch.allclose(expected[:, columns], _scores(make, changed, 0)), f"scores depend on the order of {what}"


def _reordered(data: Toy) -> list[tuple[str, Toy, Tensor]]:
    """The same data in other orders, each with what the order is of and where the classes' scores now are."""
    mixed = torch.randperm(len(data.base.labels), generator=torch.Generator().manual_seed(1))
    images = replace(data.base, features=data.base.features[mixed], labels=data.base.labels[mixed])
    back = torch.arange(BASE_CLASSES).flip(0)
    classes = replace(data.base, labels=back[data.base.labels], head=_each(data.base.head, lambda rows: rows.flip(0)))
    shots = tuple(Support(s.features.flip(-2), tuple(x.flip(0) for x in s.all_features)) for s in data.sessions)
    new = tuple(Support(s.features.flip(-3), s.all_features[::-1]) for s in data.sessions)
    columns = torch.arange(BASE_CLASSES + WAY * SESSIONS)
    in_session = columns[BASE_CLASSES:].view(SESSIONS, WAY).flip(1).flatten()
    return [
        ("base images", replace(data, base=images), columns),
        ("base classes", replace(data, base=classes), torch.cat([back, columns[BASE_CLASSES:]])),
        ("support images", replace(data, sessions=shots), columns),
        ("a session's classes", replace(data, sessions=new), torch.cat([columns[:BASE_CLASSES], in_session])),
    ]


def _each(head: Mapping[str, Tensor], change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """The head with its rows changed, where it has one a base class."""
    return {key: change(x) if x.ndim and len(x) == BASE_CLASSES else x for key, x in head.items()}


def _check_queries(make: Make, data: Toy) -> None:
    whole = _scores(make, data, 0)
    order = torch.arange(QUERIES).flip(0)
    for part in (order, torch.tensor([5]), order[3:11]):
        some = Toy(data.base, data.sessions, data.queries[part])
        assert torch.allclose(whole[part], _scores(make, some, 0)), "scores depend on how queries are batched"


def _check_encode(make: Make, data: Toy) -> None:
    """What is done with queries once is what would be done with them in every session."""
    method = _fitted(make, data.base)
    before = method.generator.get_state()
    early = method.encode(data.queries)
    assert torch.equal(method.generator.get_state(), before), "encode draws random numbers"
    assert early.shape[:-1] == data.queries.shape[:-1], f"encode gave shape {[*early.shape]} for {QUERIES} queries"
    for support in data.sessions:
        method.add_session(_given(method, support, 0))
    assert torch.equal(early, method.encode(data.queries)), "encode depends on the sessions"


def _check_forks(make: Make, data: Toy) -> None:
    """Two forks of one fitted method, walked in turn, see nothing of each other."""
    method = _fitted(make, data.base)
    rows = method.encode(data.queries)
    forks = [method.fork() for _ in range(2)]
    for fork in forks:
        fork.generator = torch.Generator().manual_seed(0)
    for support in data.sessions:
        for draw, fork in enumerate(forks):
            fork.add_session(_given(fork, support, draw))
    for draw, fork in enumerate(forks):
        alone = _fitted(make, data.base).fork()
        alone.generator = torch.Generator().manual_seed(0)
        for support in data.sessions:
            alone.add_session(_given(alone, support, draw))
        assert torch.equal(alone.scores(rows), fork.scores(rows)), (
            "forks share state: add_session must set attributes anew, not change them in place"
        )


def _check_memory(make: Make, data: Toy) -> None:
    """No more images of an earlier session are kept than declared; images that are kept changed are not found."""
    method = _fitted(make, data.base)
    for support in data.sessions:
        method.add_session(_given(method, support, 0))
    rows = [tensor.double().reshape(-1, DIM) for tensor in _tensors(vars(method)) if tensor.shape[-1:] == (DIM,)]
    shots = data.sessions[0].features[0]  # [way, shot, d]
    found = (shots[:, :, None] == torch.cat([shots.new_empty(0, DIM), *rows])).all(dim=-1).any(dim=-1)
    most = int(found.sum(dim=-1).max())
    assert most <= method.exemplars, (
        f"keeps {most} images of a class for later sessions and declares {method.exemplars}: name the privilege "
        "'exemplars' and set their number"
    )


def _tensors(value: object) -> Iterator[Tensor]:
    """Every tensor that can be reached from a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (tensor for part in value.values() for tensor in _tensors(part))
    elif isinstance(value, list | tuple | set):
        yield from (tensor for part in value for tensor in _tensors(part))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _tensors(vars(value))


def _check_episodes(make: Make, data: Toy) -> None:
    """With the base classes as donors only, answers are the episode's classes alone, and episodes do not mix."""
    donors = replace(data.base, donors_only=True)
    if not make().method.episodes:
        _check_no_episodes(make, donors)
        return
    fitted = _fitted(make, donors)
    support, queries = data.sessions[0].features, data.sessions[1].features.flatten(1, 2)  # each episode has its own

    def scores(some: Tensor, of: Tensor) -> Tensor:
        method = fitted.fork()
        method.generator = torch.Generator().manual_seed(0)
        rows = method.encode(of)
        method.add_session(Support(some))
        return method.scores(rows)

    alone = [scores(some, of) for some, of in zip(support, queries, strict=True)]
    for part in alone:
        shape = (queries.shape[1], WAY)
        assert part.shape == shape, f"in an episode of {WAY} classes scores have shape {[*part.shape]}"
    kind = type(fitted)
    assert kind.batched or kind.episode_block >= 1, "episode_block is a number of episodes"
    if kind.batched:
        together = scores(support, queries)
        assert together.shape == (len(support), *shape), (
            f"in {len(support)} episodes scores have shape {together.shape}"
        )
        assert torch.allclose(torch.stack(alone), together), "episodes in a batch influence each other"
    elif kind.episode_block > 1:
        again = [scores(support[:2], queries[:2]) for _ in range(2)]
        assert again[0].shape == (2, *shape), f"in two episodes scores have shape {[*again[0].shape]}"
        assert torch.equal(*again), "the same block of episodes twice gives other scores"


def _check_no_episodes(make: Make, donors: Base) -> None:
    try:
        _fitted(make, donors)
    except UsageError:
        return
    raise AssertionError("declares itself of no use in episodes, but fit_base takes donors without a UsageError")


def _check_classwise(make: Make, data: Toy) -> None:
    early = _scores(make, data, 0, sessions=1)
    late = _scores(make, data, 0)
    assert torch.allclose(early, late[:, : early.shape[1]]), "declared classwise, but a new class changes old scores"
