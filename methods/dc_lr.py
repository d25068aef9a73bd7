"""Distribution calibration: few shots borrow the spread of the base classes that they resemble."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fscil_bench.gaussians import Gaussians, Stock, noise, normal
from fscil_bench.logistic import Axes
from fscil_bench.method import Base, Support, setting

from .tukey_lr import TukeyLogisticRegression

WAYS = 5  # of an episode whose classes take hardly a row of the stock twice
STOCK_BYTES = 512 * 2**20  # a stock that would be larger is not kept


@dataclass(frozen=True)
class Borrowed:
    """The Gaussians of a session's images: their means, and the base classes whose covariances they take over."""

    seed: int  # of the random numbers they are sampled with, in every fit the same
    means: Tensor  # [*, W, K, d]
    donors: Tensor  # [*, W, K, k]
    images: Tensor | None  # [*, W, K, d], as long as the session lasts


@dataclass(kw_only=True)
class DistributionCalibration(TukeyLogisticRegression):
    """Sample features from Gaussians that new classes inherit from similar base classes, then logistic regression.

    Every support image gets a Gaussian of its own: its mean is moved towards the k nearest base means, its covariance
    is theirs, widened by alpha. In sessions these Gaussians are kept, and images are not; in every fit they are sampled
    with the same random numbers, so that it moves by what is new alone. Base classes are represented by samples from
    their own Gaussians in the transformed space. alpha is the public script's on all datasets: miniImagenet is the only
    one that it knows.
    """

    paper = "Yang et al., Free Lunch for Few-shot Learning: Distribution Calibration, ICLR 2021"
    equations = (
        "the public code's steps (variant=code); where the code and the method's sense part, this benchmark's "
        "(variant=corrected); how sessions go on is this benchmark's too"
    )
    baseline = "tukey-lr"
    deviations = (
        "the paper knows episodes only; in sessions all classes seen are fitted, base classes by samples from their "
        "Gaussians, and a class gets `samples` features where the paper has 750; the support images are among them in "
        "their own session alone, but their Gaussians, one an image, tell as much, and so count as exemplars",
        "variant=code: base statistics are of raw features though support and queries are transformed, and alpha is "
        "added to every entry of the covariance; variant=corrected: both are transformed, alpha on the diagonal",
        "negative features keep their sign: sign(x) |x|^lambda; the paper's features are never negative",
        "in episodes noise comes from a stock of each base class, drawn once, where that takes no more than 512 MB: "
        "samples have the distribution they should have, but other episodes get rows of the same noise; features and "
        "fits are in single precision",
    )
    episode_block = 4
    variants = ({"variant": "corrected"},)

    k: int = setting(2, "how many base classes an image borrows from", origin="code", low=1)
    alpha: float = setting(0.21, "what is added to the borrowed covariance", origin="code", low=0)
    episode_samples: int = setting(750, "features drawn for a class in an episode", origin="code", low=1)
    variant: Literal["code", "corrected"] = setting(
        "code", "raw base statistics and alpha everywhere, or corrected", origin="code"
    )

    donors: Gaussians = field(init=False, repr=False, compare=False)
    stock: Stock | None = field(init=False, repr=False, compare=False, default=None)  # of noise, for episodes

    def fit_base(self, base: Base) -> None:
        super().fit_base(base)
        features = base.features if self.variant == "code" else self.embed(base.features)
        donors, borrowed = self._donors(base.by_class(features))
        if self.axes is None:
            self.axes, donors = Axes.of(borrowed).to(torch.float32), donors.to(torch.float32)
        else:  # from now on classes are base classes and new ones
            old, self.axes = self.axes.turn, Axes.of((self.axes.covariance() + borrowed) / 2)
            self.base = tuple(samples @ (old.mT @ self.axes.turn) for samples in self.base)
        self.donors, self.stock = donors.turned(self.axes.turn), None
        count, d = donors.means.shape
        size = WAYS * self.episode_samples
        if base.donors_only and 4 * count * size * d <= STOCK_BYTES:
            self.stock = Stock(self._noise(torch.arange(count)[:, None], size, self.generator) / self._k**0.5)

    def _donors(self, classes: Sequence[Tensor]) -> tuple[Gaussians, Tensor]:
        """What is borrowed from, and what the covariance of a new class is on average."""
        donors = Gaussians.of(classes)
        pooled = donors.pooled()
        wider = torch.ones_like(pooled) if self.variant == "code" else torch.eye(len(pooled), dtype=pooled.dtype)
        return donors, pooled + self.alpha * wider

    def add_session(self, support: Support) -> None:
        self.kept = tuple(replace(session, images=None) for session in self.kept)
        super().add_session(support)

    def remember(self, shots: Tensor) -> Borrowed:
        near = self._nearest(shots)
        means = (shots + self.donors.means[near].sum(dim=-2)) / (self._k + 1)
        seed = int(torch.randint(2**62, (), generator=self.generator))
        return Borrowed(seed, means, near, shots)

    def represent(self, kept: Borrowed) -> Tensor:
        """Samples of each image's Gaussian; the image takes the first place, as long as it is there."""
        per_class = self.episode_samples if self.donors_only else self.samples
        rows = 1 + max(1, round(per_class / kept.means.shape[-2]))
        drawn = self._noise(kept.donors, rows, torch.Generator().manual_seed(kept.seed))
        drawn += kept.means[..., None, :]
        if kept.images is None:
            drawn = drawn[..., 1:, :]
        else:
            drawn[..., 0, :] = kept.images
        return drawn.flatten(-3, -2)

    @property
    def _k(self) -> int:
        return min(self.k, len(self.donors.means))

    def _nearest(self, shots: Tensor) -> Tensor:
        """The base classes whose means are nearest, by Euclidean distance: [*, W, K, d] -> [*, W, K, k]."""
        means = self.donors.means
        distance = means.square().sum(dim=-1) - 2 * shots @ means.mT  # what is the same for all classes left out
        return distance.topk(self._k, dim=-1, largest=False).indices

    def _noise(self, classes: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Of the mean covariance of some base classes, widened: [*, k] -> [*, count, d]."""
        if self.stock is not None:
            found = self.stock.sums(classes.flatten(1, -2), count, generator)
            return found.reshape(*classes.shape[:-1], *found.shape[-2:])
        roots = self.donors.roots[classes] / classes.shape[-1] ** 0.5  # of a mean: roots one below the other
        drawn = noise(roots.flatten(-3, -2), count, generator)
        return drawn + self._widening(drawn, generator)

    def _widening(self, drawn: Tensor, generator: torch.Generator) -> Tensor:
        """Noise of covariance alpha in every entry (one number for all dimensions), or on the diagonal (one each)."""
        if self.variant == "corrected":
            return self.alpha**0.5 * normal(drawn.shape, drawn, generator)
        assert self.axes is not None
        everywhere = self.axes.turn.sum(dim=0)  # a vector of ones, turned
        return self.alpha**0.5 * normal((*drawn.shape[:-1], 1), drawn, generator) * everywhere
