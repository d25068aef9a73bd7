"""Logistic regression on frozen features: the classifier of distribution calibration without the calibration."""

from dataclasses import dataclass, field

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
    episode there are the support images alone, counted once.
    """

    paper = "Yang et al., Free Lunch for Few-shot Learning: Distribution Calibration, ICLR 2021 (its ablation)"
    baseline = "protonet"
    deviations = (
        "the paper knows episodes only; in sessions base classes are represented by samples from their Gaussians",
        "in sessions support images are repeated, so that new classes weigh as much as base classes",
    )
    defaults = (Default({"dataset": "cub200"}, {"samples": 30}, origin="own"),)  # as many as a base class has images
    batched = False
    costly = ("fscil", "fsl")
    sampled = True
    episode_block = 64  # a fit to a few images alone is too small to be worth starting

    samples: int = setting(100, "features that stand for a class in sessions", origin="own", low=1)
    # At scikit-learn's 1e-4 a fit ends so early that numbers depend on the order of summation, so on threads.
    tol: float = setting(1e-8, "largest entry of the gradient at which a fit ends", origin="own", low=1e-12)
    episode_tol: float = setting(1e-4, "the same in an episode: scikit-learn's", origin="code", low=1e-6)
    c: float = setting(1.0, "C of the logistic regression: the weight of the data against the penalty", low=1e-6)

    features: Tensor = field(init=False, repr=False, compare=False)  # [*, n, d], all that it is fitted to, turned
    labels: Tensor = field(init=False, repr=False, compare=False)  # [n]
    axes: Axes | None = field(init=False, repr=False, compare=False, default=None)  # that features are turned to
    classifier: Linear | None = field(init=False, repr=False, compare=False, default=None)
    donors_only: bool = field(init=False, repr=False, compare=False)

    def embed(self, features: Tensor) -> Tensor:
        """What a feature becomes before anything else is done with it."""
        return features

    def represent(self, shots: Tensor) -> Tensor:
        """What stands for new classes in the fit: [*, W, K, d] -> [*, W, m, d]."""
        copies = 1 if self.donors_only else max(1, round(self.samples / shots.shape[-2]))
        return shots.repeat_interleave(copies, dim=-2)

    def fit_base(self, base: Base) -> None:
        self.donors_only, self.axes = base.donors_only, None
        self.features, self.labels = base.features[:0], base.labels[:0]
        if not base.donors_only:
            gaussians = Gaussians.of(base.by_class(self.embed(base.features)))
            self.axes = Axes.of(gaussians.pooled())
            self._learn(gaussians.turned(self.axes.turn).sample(self.samples, self.generator))

    def add_session(self, support: Support) -> None:
        shots = self.embed(support.features)
        if self.axes is not None:
            shots = shots.to(self.axes.turn.dtype) @ self.axes.turn
        self._learn(self.represent(shots))

    def encode(self, queries: Tensor) -> Tensor:
        return self.embed(queries)

    def scores(self, queries: Tensor) -> Tensor:
        assert self.classifier is not None, "scores before a session of an episode"
        return self.classifier.scores(queries.to(self.classifier.weights.dtype))

    def trained_parameters(self) -> int:
        if self.classifier is None:
            return 0
        c, d = self.classifier.weights.shape[-2:]
        return c * (d + 1)

    def _learn(self, new: Tensor) -> None:
        """Add classes, [*, W, m, d], and fit all of them; the last fit is where this one starts."""
        *batch, way, count, d = new.shape
        known = 0 if self.classifier is None else self.classifier.weights.shape[-2]
        numbers = torch.arange(known, known + way).repeat_interleave(count)
        self.labels = torch.cat([self.labels, numbers])
        new = new.reshape(*batch, way * count, d)
        old = self.features.expand(*batch, *self.features.shape[-2:])
        self.features = torch.cat([old, new], dim=-2) if known else new
        start = None if self.classifier is None else self.classifier.widened(known + way)
        tol = self.episode_tol if self.donors_only else self.tol
        self.classifier = fit(
            self.features, self.labels, known + way, c=self.c, tol=tol, dtype=new.dtype, start=start, axes=self.axes
        )
