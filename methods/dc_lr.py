"""Distribution calibration: few shots borrow the spread of the base classes that they resemble."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fscil_bench.gaussians import Gaussians, noise, normal
from fscil_bench.method import Base, setting

from .tukey_lr import TukeyLogisticRegression


@dataclass(kw_only=True)
class DistributionCalibration(TukeyLogisticRegression):
    """Sample features from Gaussians that new classes inherit from similar base classes, then logistic regression.

    Every support image gets a Gaussian of its own: its mean is moved towards the k nearest base means, its covariance
    is theirs, widened by alpha. In sessions, base classes are represented by samples from their own Gaussians in the
    transformed space; new classes keep the samples of their session.
    """

    paper = "Yang et al., Free Lunch for Few-shot Learning: Distribution Calibration, ICLR 2021"
    baseline = "tukey-lr"
    deviations = (
        "the paper knows episodes only; in sessions all classes seen are fitted, base classes by samples from their "
        "Gaussians, and a class gets `samples` features where the paper has 750",
        "variant=code: base statistics are of raw features though support and queries are transformed, and alpha is "
        "added to every entry of the covariance; variant=corrected: both are transformed, alpha on the diagonal",
        "negative features keep their sign: sign(x) |x|^lambda; the paper's features are never negative",
    )
    episode_block = 1  # thousands of samples an episode: more at once would only need more memory
    variants = ({"variant": "corrected"},)

    k: int = setting(2, "how many base classes an image borrows from", low=1)
    alpha: float = setting(0.21, "what is added to the borrowed covariance", low=0)
    episode_samples: int = setting(750, "features drawn for a class in an episode", low=1)
    variant: Literal["code", "corrected"] = setting("code", "raw base statistics and alpha everywhere, or corrected")

    donors: Gaussians = field(init=False, repr=False, compare=False)

    def fit_base(self, base: Base) -> None:
        features = base.features if self.variant == "code" else self.embed(base.features)
        self.donors = Gaussians.of(base.by_class(features))
        super().fit_base(base)

    def represent(self, shots: Tensor) -> Tensor:
        per_class = self.episode_samples if self.donors_only else self.samples
        count = max(1, round(per_class / shots.shape[-2]))  # for each image
        near = self._nearest(shots)  # [*, W, K, k]
        k = near.shape[-1]
        means = (shots + self.donors.means[near].sum(dim=-2)) / (k + 1)
        roots = self.donors.roots[near] / k**0.5  # the mean of k covariances: their roots one below the other
        drawn = means[..., None, :] + noise(roots.flatten(-3, -2), count, self.generator)
        drawn = drawn + self._widening(drawn)
        return torch.cat([shots, drawn.flatten(-3, -2)], dim=-2)

    def _nearest(self, shots: Tensor) -> Tensor:
        """The base classes whose means are nearest, by Euclidean distance."""
        means = self.donors.means
        distance = means.square().sum(dim=-1) - 2 * shots @ means.mT  # what is the same for all classes left out
        return distance.topk(min(self.k, len(means)), dim=-1, largest=False).indices

    def _widening(self, drawn: Tensor) -> Tensor:
        """Noise of covariance alpha in every entry (one number for all dimensions), or on the diagonal (one each)."""
        last = 1 if self.variant == "code" else drawn.shape[-1]
        return self.alpha**0.5 * normal((*drawn.shape[:-1], last), drawn, self.generator)
