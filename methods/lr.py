"""Logistic regression on frozen features: the classifier of distribution calibration without the calibration."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fscil_bench.gaussians import Gaussians
from fscil_bench.logistic import Axes, Linear, fit
from fscil_bench.method import Base, Default, Method, Support, setting


@dataclass(kw_only=True)
class LogisticRegression(Method):
    """Fit a logistic regression anew after each session, over all classes seen.

    No image of a base class is kept: samples from its normal distribution stand for it, `samples` to a class, drawn
    once. A new class is its support images, each counted as often as it takes to weigh as much as a base class. In an
    episode there are the support images alone, counted once. A session is fitted when its scores are asked for.
    """

    paper = "Yang et al., Free Lunch for Few-shot Learning: Distribution Calibration, ICLR 2021 (its ablation)"
    equations = "scikit-learn's LogisticRegression, which the paper's code calls: its objective, minimised here"
    baseline = "protonet"
    deviations = (
        "the paper knows episodes only; in sessions base classes are represented by samples from their Gaussians",
        "in sessions support images are repeated, so that new classes weigh as much as base classes",
        "the support images of earlier sessions are kept as features",
    )
    privileges = ("exemplars",)
    exemplars = 5  # features of each new class
    defaults = (Default({"dataset": "cub200"}, {"samples": 30}, origin="own"),)  # as many as a base class has images
    batched = False
    costly = ("fscil", "fsl")
    sampled = True
    episode_block = 64  # a fit to a few images alone is too small to be worth starting

    samples: int = setting(100, "features that stand for a class in sessions", origin="own", low=1)
    # At scikit-learn's 1e-4 a fit ends so early that numbers depend on the order of summation, so on threads.
    tol: float = setting(1e-8, "largest entry of the gradient at which a fit ends", origin="own", low=1e-12)
    episode_tol: float = setting(1e-4, "the same in an episode: scikit-learn's", origin="code", low=1e-6)
    c: float = setting(
        1.0, "C of the logistic regression: the weight of the data against the penalty", origin="code", low=1e-6
    )

    axes: Axes | None = field(init=False, repr=False, compare=False, default=None)  # that features are turned to
    base: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [B, samples, d]; none in an episode
    kept: tuple[Any, ...] = field(init=False, repr=False, compare=False)  # of each session, what `remember` gave
    classifier: Linear | None = field(init=False, repr=False, compare=False)  # the last one fitted
    fitted: bool = field(init=False, repr=False, compare=False)  # to all classes seen
    donors_only: bool = field(init=False, repr=False, compare=False)

    def embed(self, features: Tensor) -> Tensor:
        """What a feature becomes before anything else is done with it."""
        return features

    def remember(self, shots: Tensor) -> Any:
        """What is kept of a session's classes, [*, W, K, d]."""
        return shots

    def represent(self, kept: Any) -> Tensor:
        """What stands for them in a fit: [*, W, m, d]."""
        shots: Tensor = kept
        copies = 1 if self.donors_only else max(1, round(self.samples / shots.shape[-2]))
        return shots.repeat_interleave(copies, dim=-2)

    def fit_base(self, base: Base) -> None:
        self.donors_only, self.axes, self.classifier = base.donors_only, None, None
        self.base, self.kept, self.fitted = (), (), False
        if not base.donors_only:
            gaussians = Gaussians.of(base.by_class(self.embed(base.features)))
            self.axes = Axes.of(gaussians.pooled())
            self.base = (gaussians.turned(self.axes.turn).sample(self.samples, self.generator),)
            self._fit()

    def add_session(self, support: Support) -> None:
        shots = self.embed(support.features)
        if self.axes is not None:
            shots = shots.to(self.axes.turn.dtype) @ self.axes.turn
        self.kept, self.fitted = (*self.kept, self.remember(shots)), False

    def encode(self, queries: Tensor) -> Tensor:
        return self.embed(queries)

    def scores(self, queries: Tensor) -> Tensor:
        if not self.fitted:
            self._fit()
        assert self.classifier is not None
        return self.classifier.scores(queries.to(self.classifier.weights.dtype))

    def trained_parameters(self) -> int:
        if self.classifier is None:
            return 0
        c, d = self.classifier.weights.shape[-2:]
        return c * (d + 1)

    def data(self) -> tuple[Tensor, Tensor]:
        """What is fitted: features of all classes seen, turned, [*, n, d], and their classes, [n]."""
        parts = [*self.base, *map(self.represent, self.kept)]
        counts = torch.tensor([part.shape[-2] for part in parts for _ in range(part.shape[-3])])
        labels = torch.arange(len(counts)).repeat_interleave(counts)
        return torch.cat([part.flatten(-3, -2) for part in parts], dim=-2), labels

    def _fit(self) -> None:
        """Fit all classes seen; the last fit is where this one starts."""
        features, labels = self.data()
        n_classes = int(labels[-1]) + 1
        start = None if self.classifier is None else self.classifier.widened(n_classes)
        tol = self.episode_tol if self.donors_only else self.tol
        self.classifier = fit(
            features, labels, n_classes, c=self.c, tol=tol, dtype=features.dtype, start=start, axes=self.axes
        )
        self.fitted = True
