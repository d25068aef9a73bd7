"""What a method is: a few verbs on features, typed settings, and a few declared facts.

A method sees features, never images' names, labels of queries, or a metric. The harness alone scores. To add one, write
a dataclass with these verbs (or subclass `PrototypeMethod` and write `calibrate`), and name it in the entry-point group
`fscil_bench.methods`; see CONTRIBUTING.md.

`*` in a shape is any leading batch: draws, episodes, grid points.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# Where the value of a setting comes from: published, chosen on base classes (val), set here for want of either (own).
Origin = Literal["paper", "code", "val", "own", "user"]


@dataclass(frozen=True)
class Base:
    """The base session: all training features of the base classes, labelled 0 .. n_classes - 1."""

    features: Tensor  # [N, d]
    labels: Tensor  # [N]
    n_classes: int
    head: Mapping[str, Tensor] = field(default_factory=dict)  # what the backbone's recipe left for inference
    donors_only: bool = False  # in few-shot episodes: the base classes may be learned from but are not answers

    def means(self, embed: Callable[[Tensor], Tensor] = lambda features: features) -> Tensor:
        """The mean feature of every base class, [B, d]; `embed` is done to the features first."""
        features = embed(self.features)
        sums = features.new_zeros(self.n_classes, features.shape[-1]).index_add(0, self.labels, features)
        return sums / torch.bincount(self.labels, minlength=self.n_classes)[:, None]

    def by_class(self, features: Tensor) -> tuple[Tensor, ...]:
        """The rows of `features`, one a base image, class by class: B x [n, d]."""
        counts = torch.bincount(self.labels, minlength=self.n_classes).tolist()
        return tuple(features[self.labels.argsort(stable=True)].split(counts))


@dataclass(frozen=True)
class Support:
    """The labelled images of one session: W new classes with K images each, in the protocol's class order."""

    features: Tensor  # [*, W, K, d]
    all_features: tuple[Tensor, ...] = ()  # privilege "all_data" alone: all training images of each class, W x [N, d]


@dataclass(frozen=True)
class Default:
    """Defaults that hold where `when` does: keys are "dataset" or the names of other settings."""

    when: Mapping[str, Any]
    values: Mapping[str, Any]
    origin: Origin


def setting(
    default: Any, meaning: str, *, origin: Origin = "own", low: float | None = None, high: float | None = None
) -> Any:
    """A setting of a method: a dataclass field with its meaning, its range, and where its default comes from."""
    return field(default=default, metadata={"meaning": meaning, "origin": origin, "low": low, "high": high})


@dataclass(kw_only=True)
class Method(ABC):
    """A classifier that learns base classes, then sessions of new ones.

    `add_session` sets attributes to new values and never changes a tensor or list in place: the runner copies a method
    after `fit_base` and walks each copy through other sessions.
    """

    paper: ClassVar[str] = ""  # authors, title, venue
    equations: ClassVar[str] = ""  # where its formulas come from: which paper's text or code, or this benchmark
    deviations: ClassVar[tuple[str, ...]] = ()  # from the paper or its code
    # What it uses beyond plain FSCIL: "exemplars", "all_data", "total_classes".
    privileges: ClassVar[tuple[str, ...]] = ()
    objective: ClassVar[str | None] = None  # of the backbone's training, if it cannot do without that
    baseline: ClassVar[str | None] = None  # the method it builds on; `run` shows the paired difference
    batched: ClassVar[bool] = True  # takes a leading batch of draws or episodes
    episode_block: ClassVar[int] = 1  # if not batched: the fixed number of episodes it takes at once nevertheless
    classwise: ClassVar[bool] = False  # a class's score does not change when classes are added
    compared_with: ClassVar[tuple[str, ...]] = ()  # methods its paper is measured against in few-shot episodes
    costly: ClassVar[tuple[str, ...]] = ()  # "fscil": 10 draws are a full row, not 100; "fsl": 2,000 episodes
    sampled: ClassVar[bool] = False  # draws random numbers: `check` then allows for other libraries' streams
    episodes: ClassVar[bool] = True  # makes sense in few-shot episodes, where base classes are donors only
    defaults: ClassVar[tuple[Default, ...]] = ()
    variants: ClassVar[tuple[Mapping[str, Any], ...]] = ()  # other settings that deserve a leaderboard row

    exemplars: ClassVar[int] = 0  # images of old classes it keeps; none unless "exemplars" is among its privileges

    generator: torch.Generator = field(init=False, repr=False, compare=False)  # set by the runner: all randomness

    @abstractmethod
    def fit_base(self, base: Base) -> None:
        """Learn the base classes."""

    @abstractmethod
    def add_session(self, support: Support) -> None:
        """Learn a session's new classes."""

    def encode(self, queries: Tensor) -> Tensor:
        """What `scores` gets of the queries: [Q, d] or [*, Q, d] to one row each, of any length.

        It is called once, after `fit_base`, for all sessions and draws: the place for work on queries that no session
        changes. It draws no random numbers.
        """
        return queries

    @abstractmethod
    def scores(self, queries: Tensor) -> Tensor:
        """What `encode` gave to [*, Q, C]: one score for each class seen, in the order seen; the highest wins."""

    @classmethod
    def can_be_added(cls) -> bool:
        """Whether it can stand as Y in `X+Y`."""
        return False

    def trained_parameters(self) -> int:
        """How many numbers it fits by gradient descent in the sessions; closed forms fit none."""
        return 0

    def fork(self) -> Self:
        return copy(self)


@dataclass(kw_only=True)
class PrototypeMethod(Method):
    """One prototype a class, compared by cosine. Each step is a verb that a method may write anew."""

    classwise = True

    further: "tuple[PrototypeMethod, ...]" = field(init=False, default=())  # in `X+Y`, the methods Y
    base: Tensor = field(init=False, repr=False, compare=False)  # [B, d]
    new: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, d] for each session
    donors_only: bool = field(init=False, repr=False, compare=False)

    def embed(self, features: Tensor) -> Tensor:
        """What a feature becomes before anything else is done with it, base, support and query alike."""
        return features

    def prototypes(self, support: Support) -> Tensor:
        """A session's prototypes before calibration, [*, W, d]."""
        return self.embed(support.features).mean(dim=-2)

    def calibrate(self, new: Tensor, base: Tensor) -> Tensor:
        """Better prototypes for a session's classes: [*, W, d] shot means, [B, d] base prototypes -> [*, W, d]."""
        return new

    def adjust(self, scores: Tensor, n_base: int) -> Tensor:
        """Better scores: [*, Q, C] -> [*, Q, C]; the first n_base classes are base classes, none in an episode."""
        return scores

    def fit_base(self, base: Base) -> None:
        self.base, self.new, self.donors_only = base.means(self.embed), (), base.donors_only

    def add_session(self, support: Support) -> None:
        prototypes = self.prototypes(support)
        for method in (self, *self.further):
            prototypes = method.calibrate(prototypes, self.base)
        self.new = (*self.new, prototypes)

    @classmethod
    def can_be_added(cls) -> bool:
        """It writes `calibrate` or `adjust` and nothing else, and needs nothing special."""

        def plain(*verbs: str) -> bool:
            return all(getattr(cls, verb) is getattr(PrototypeMethod, verb) for verb in verbs)

        special = cls.privileges or cls.sampled or cls.objective or cls.exemplars
        does_more = not plain("embed", "prototypes", "fit_base", "add_session", "encode", "scores")
        return not (special or does_more or plain("calibrate", "adjust"))

    def scores(self, queries: Tensor) -> Tensor:
        queries = self.embed(queries)
        parts = [cosine(queries, torch.cat(self.new, dim=-2))] if self.new else []
        if not self.donors_only:
            parts = [cosine(queries, self.base), *parts]
        return self.adjusted(side_by_side(parts))

    def adjusted(self, scores: Tensor) -> Tensor:
        """Scores after this method's `adjust` and those of the methods added to it."""
        for method in (self, *self.further):
            scores = method.adjust(scores, 0 if self.donors_only else len(self.base))
        return scores


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Scores of several groups of classes as one, [*, Q, C]; what is the same for the whole batch is repeated."""
    batch = np.broadcast_shapes(*(part.shape[:-1] for part in parts))  # torch's own takes a second to load
    return torch.cat([part.expand(*batch, part.shape[-1]) for part in parts], dim=-1)


def cosine(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Cosines of [Q, d] or [*, Q, d] with [C, d] or [*, C, d], as [*, Q, C]."""
    queries, prototypes = unit(queries), unit(prototypes)
    if queries.ndim == 2:  # the same queries for the whole batch: one product
        return torch.einsum("qd,...cd->...qc", queries, prototypes)
    return queries @ prototypes.mT


def unit(x: Tensor) -> Tensor:
    """x / ||x||."""
    return F.normalize(x, dim=-1)


def tukey(x: Tensor, power: float) -> Tensor:
    """Tukey's ladder of powers, x ** power; negative numbers keep their sign."""
    return x.sign() * x.abs() ** power
