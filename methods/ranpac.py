"""RanPAC: random features and ridge regression, one Gram matrix for all sessions."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fscil_bench.gaussians import Gaussians, covariance_root, noise, normal
from fscil_bench.method import Base, Default, Method, Support, cosine, setting

RIDGES = [10.0**power for power in range(-8, 9)]  # what is tried, as in the paper's code


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
    baseline = "protonet"
    deviations = (
        "2,000 random features where the papers have 10,000: a Gram matrix of 32 MB instead of 800 (width=10000)",
        "the ridge is chosen in the base session alone, as in the second paper's code; the first chooses in each",
        "similarities to base classes are cosines, as the second paper's FeCAM has them; its RanPAC code has raw dot "
        "products",
        "no first-session adaptation of the backbone",
    )
    defaults = (Default({"dataset": "cifar100"}, {"own": 0.75}, origin="code"),)
    variants = ({"variant": "shots"},)
    batched = False
    costly = True
    sampled = True

    width: int = setting(2000, "how many random features", low=1)
    variant: Literal["calibrated", "shots"] = setting("calibrated", "samples (second paper) or shots (first paper)")
    samples: int = setting(800, "samples that stand for a new class", low=1)
    own: float = setting(0.9, "weight of a new class's own mean against the base mixture", low=0, high=1)
    tau: float = setting(16.0, "sharpness of the softmax over base means", low=0)

    projection: Tensor = field(init=False, repr=False, compare=False)  # [d, M]
    donors: Gaussians = field(init=False, repr=False, compare=False)
    ridge: float = field(init=False, repr=False, compare=False)
    gram: Tensor = field(init=False, repr=False, compare=False)  # [*, M, M]
    sums: Tensor = field(init=False, repr=False, compare=False)  # [*, C, M]: of each class seen

    def fit_base(self, base: Base) -> None:
        self.donors = Gaussians.of(base.by_class(base.features))
        self.projection = normal((base.features.shape[-1], self.width), base.features, self.generator)
        hidden = self._hidden(base.features)
        order = torch.randperm(len(hidden), generator=self.generator)
        fitted, held_out = order[len(hidden) // 5 :], order[: len(hidden) // 5]
        gram, sums = _statistics(hidden[fitted], base.labels[fitted], base.n_classes)
        self.ridge = _best_ridge(gram, sums, hidden[held_out], base.labels[held_out])
        more_gram, more_sums = _statistics(hidden[held_out], base.labels[held_out], base.n_classes)
        self.gram, self.sums = gram + more_gram, sums + more_sums
        if base.donors_only:
            self.gram, self.sums = torch.zeros_like(gram), sums[:0]

    def add_session(self, support: Support) -> None:
        features = support.features if self.variant == "shots" else self._calibrated(support.features)
        hidden = self._hidden(features)  # [*, W, n, M]
        flat, new = hidden.flatten(-3, -2), hidden.sum(dim=-2)
        self.gram = self.gram + flat.mT @ flat
        self.sums = torch.cat([self.sums.expand(*new.shape[:-2], *self.sums.shape[-2:]), new], dim=-2)

    def scores(self, queries: Tensor) -> Tensor:
        root = torch.linalg.cholesky(_ridged(self.gram, self.ridge))
        return self._hidden(queries) @ torch.cholesky_solve(self.sums.mT, root)

    def _hidden(self, features: Tensor) -> Tensor:
        return (features @ self.projection).relu()

    def _calibrated(self, shots: Tensor) -> Tensor:
        """Samples from the calibrated Gaussian of each new class: [*, W, K, d] -> [*, W, samples, d]."""
        means = shots.mean(dim=-2)
        shares = (self.tau * cosine(means, self.donors.means)).softmax(dim=-1)  # [*, W, B]
        means = self.own * means + (1 - self.own) * shares @ self.donors.means
        # Half of the covariance is the shots', half the base classes' mixture: all their roots, scaled by their shares.
        borrowed = []
        for share in shares.flatten(0, -2):  # one class at a time: the roots together are large
            roots = share.sqrt()[:, None, None] * self.donors.roots
            borrowed.append(noise(roots.flatten(0, 1), self.samples, self.generator))
        spread = noise(covariance_root(shots), self.samples, self.generator)
        return means[..., None, :] + (spread + torch.stack(borrowed).reshape(spread.shape)) / 2**0.5


def _statistics(hidden: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """The Gram matrix and the sum of each class."""
    return hidden.mT @ hidden, hidden.new_zeros(n_classes, hidden.shape[-1]).index_add(0, labels, hidden)


def _ridged(gram: Tensor, ridge: float) -> Tensor:
    return gram + ridge * torch.eye(gram.shape[-1], dtype=gram.dtype)


def _best_ridge(gram: Tensor, sums: Tensor, held_out: Tensor, labels: Tensor) -> float:
    """The ridge whose answers to held-out images are nearest to one for their class and zero for the others."""
    wanted = torch.nn.functional.one_hot(labels, len(sums)).to(held_out.dtype)
    errors = {}
    for ridge in RIDGES:
        root, failed = torch.linalg.cholesky_ex(_ridged(gram, ridge))
        if not failed:  # it fails where the ridge is lost in rounding
            errors[ridge] = float((held_out @ torch.cholesky_solve(sums.mT, root) - wanted).square().mean())
    return min(errors, key=errors.__getitem__)
