"""RanPAC: random features and ridge regression, one Gram matrix for all sessions."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fscil_bench.covariances import Covariances
from fscil_bench.gaussians import covariance_root, normal
from fscil_bench.method import Base, Default, Method, Support, cosine, setting
from fscil_bench.ridge import best_ridge, dual_scores, gram_matrix, solve

RIDGES = [10.0**power for power in range(-8, 9)]  # what is tried, as in the first paper's code; the second's from 10 on
ROWS = 4096  # of images projected, or of covariances factored, at a time
JITTER = 1e-9  # of the mean variance, added to a covariance: a dimension that never varies has no Cholesky factor


@dataclass(kw_only=True)
class RanPAC(Method):
    """Project features at random, cut at zero, and solve a ridge regression on the Gram matrix of all images seen.

    The Gram matrix and the sums of classes are all that is kept, so a session is added without images of the others. A
    class counts by its images, and five shots vanish beside hundreds: so the second paper has samples from a Gaussian
    stand for a new class, its mean and covariance calibrated by those of similar base classes.
    """

    paper = (
        "McDonnell et al., RanPAC: Random Projections and Pre-trained Models for Continual Learning, NeurIPS 2023; "
        "Goswami et al., Calibrating Higher-Order Statistics for Few-Shot Class-Incremental Learning, CVPRW 2024"
    )
    equations = (
        "projection, Gram matrix and ridge from the first paper; Gaussians of new classes and their samples from the "
        "second paper's code"
    )
    baseline = "protonet"
    deviations = (
        "2,000 random features where the papers have 10,000: a Gram matrix of 32 MB instead of 800 (width=10000)",
        "the ridge is chosen in the base session alone, as in the second paper's code; the first chooses in each",
        "that choice is among powers of ten from 1e-8 to 1e8, as in the first paper's code; the second's begins at 10",
        "the fifth of the base images that it is made on is random, so it depends on the order of the images",
        "similarities to base classes are cosines, as the second paper's FeCAM has them; its RanPAC code has raw dot "
        "products, with which the length of features decides how sharp the softmax is, and long base means count more",
        "samples come in pairs, mirrored at the mean: each has the paper's distribution, for half the work",
        "in an episode `episode_samples` stand for a class, with the ridge of the base session; the papers have no "
        "episodes",
        "no first-session adaptation of the backbone",
    )
    defaults = (Default({"dataset": "cifar100"}, {"own": 0.75}, origin="code"),)
    variants = ({"variant": "shots"},)
    batched = False
    episode_block = 16
    costly = ("fsl",)
    sampled = True

    width: int = setting(2000, "how many random features", origin="own", low=1)
    variant: Literal["calibrated", "shots"] = setting(
        "calibrated", "samples (second paper) or shots (first paper)", origin="code"
    )
    samples: int = setting(800, "samples that stand for a new class", origin="code", low=1)
    episode_samples: int = setting(100, "samples that stand for a class in an episode", origin="own", low=1)
    own: float = setting(0.9, "weight of a new class's own mean against the base mixture", origin="code", low=0, high=1)
    tau: float = setting(16.0, "sharpness of the softmax over base means", origin="code", low=0)

    projection: Tensor = field(init=False, repr=False, compare=False)  # [d, M]
    means: Tensor = field(init=False, repr=False, compare=False)  # [B, d] of the base classes
    covariances: Covariances = field(init=False, repr=False, compare=False)  # of the base classes
    ridge: float = field(init=False, repr=False, compare=False)
    gram: Tensor = field(init=False, repr=False, compare=False)  # [M, M]
    sums: Tensor = field(init=False, repr=False, compare=False)  # [C, M]: of each class seen
    episode: Tensor = field(init=False, repr=False, compare=False)  # [*, W, n, M]: all there is in an episode
    donors_only: bool = field(init=False, repr=False, compare=False)

    def fit_base(self, base: Base) -> None:
        self.donors_only, self.means = base.donors_only, base.means()
        self.covariances = Covariances.of(base.by_class(base.features))
        self.projection = normal((base.features.shape[-1], self.width), base.features, self.generator)
        order = torch.randperm(len(base.labels), generator=self.generator)
        fitted, held_out = order[len(order) // 5 :], order[: len(order) // 5]
        gram, sums = self._statistics(base, fitted)
        self.ridge = best_ridge(RIDGES, gram, sums, self.encode(base.features[held_out]), base.labels[held_out])
        more_gram, more_sums = self._statistics(base, held_out)
        self.gram, self.sums = gram + more_gram, sums + more_sums

    def add_session(self, support: Support) -> None:
        # Samples are float32: they are random to begin with. Shots are float64, as everything else.
        hidden = self.encode(support.features) if self.variant == "shots" else self._drawn(support.features)
        if self.donors_only:
            self.episode = hidden.double()
            return
        self.gram = self.gram + gram_matrix(hidden.flatten(0, 1)).double()
        self.sums = torch.cat([self.sums, hidden.sum(dim=-2, dtype=torch.float64)])

    def encode(self, queries: Tensor) -> Tensor:
        """Random features, h = max(x P, 0)."""
        return (queries @ self.projection).relu_()

    def scores(self, queries: Tensor) -> Tensor:
        if self.donors_only:
            return dual_scores(self.episode, queries, self.ridge)
        return queries @ solve(self.gram, self.sums, self.ridge)

    def _drawn(self, shots: Tensor) -> Tensor:
        """Random features of samples of each new class, float32: [*, W, K, d] -> [*, W, samples, M]."""
        means, away = self._calibrated(shots)
        middle, away = (means @ self.projection)[..., None, :].float(), away @ self.projection.float()
        return torch.cat([middle + away, middle - away], dim=-2)[..., : self._count, :].relu_()

    @property
    def _count(self) -> int:
        """How many samples stand for a class."""
        return self.episode_samples if self.donors_only else self.samples

    def _calibrated(self, shots: Tensor) -> tuple[Tensor, Tensor]:
        """The calibrated mean of each new class, [*, W, d], and what its pairs of samples add and take, [*, W, n, d].

        Half of the covariance is the shots', half the mixture of the base classes'. Its Cholesky factor changes little
        where features change little, whatever roots the covariances come from.
        """
        means, spreads = shots.mean(dim=-2), covariance_root(shots).flatten(0, -3)
        shares = (self.tau * cosine(means, self.means)).softmax(dim=-1)  # [*, W, B]
        pairs = -(-self._count // 2)
        away = []
        step = max(1, ROWS // self.covariances.d)
        mixtures = self.covariances.mixtures(shares.flatten(0, -2), step)
        for mixed, spread in zip(mixtures, spreads.split(step), strict=True):
            covariance = torch.baddbmm(mixed, spread.mT, spread, beta=0.5, alpha=0.5)
            variances = covariance.diagonal(dim1=-2, dim2=-1)
            variances += JITTER * variances.mean(dim=-1, keepdim=True)
            root = torch.linalg.cholesky(covariance).float()
            away.append(normal((len(root), pairs, root.shape[-1]), root, self.generator) @ root.mT)
        means = self.own * means + (1 - self.own) * shares @ self.means
        return means, torch.cat(away).reshape(*means.shape[:-1], pairs, -1)

    def _statistics(self, base: Base, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The Gram matrix of some base images and the sum of each class, part by part: together they are large."""
        gram, sums = torch.zeros(()), torch.zeros(())
        for part in chosen.split(ROWS):
            hidden = self.encode(base.features[part])
            gram = gram + gram_matrix(hidden)
            empty = hidden.new_zeros(base.n_classes, hidden.shape[-1])
            sums = sums + empty.index_add(0, base.labels[part], hidden)
        return gram, sums
