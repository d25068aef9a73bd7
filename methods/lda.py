"""Linear discriminant analysis: class means, and one covariance from the base classes for all."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fscil_bench.method import Base, Method, Support, setting, side_by_side


@dataclass(kw_only=True)
class LDA(Method):
    """Nearest class mean after whitening by the covariance within base classes.

    Means count with their lengths here, which methods that calibrate directions do not keep: nothing is added to it.
    """

    paper = (
        "Hayes and Kanan, Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis, CVPRW 2020; "
        "shrinkage: Ledoit and Wolf, A Well-Conditioned Estimator for Large-Dimensional Covariance Matrices, JMVA 2004"
    )
    equations = "textbook, as the first paper's static variant; the share of the identity is Ledoit and Wolf's estimate"
    baseline = "protonet"
    deviations = (
        "the covariance is that of the base session (the paper's static variant): few shots would not better it",
        "shrinks towards a multiple of the identity by Ledoit and Wolf's estimate; the paper's code by the oracle "
        "approximating shrinkage (OAS), then by 1e-4 towards the identity itself, whatever the scale of the features",
    )
    classwise = True
    variants = ({"shrinkage": 1e-4},)

    shrinkage: float | None = setting(
        None, "share of the identity in the covariance; none: Ledoit and Wolf's estimate", origin="own", low=0, high=1
    )

    base: Tensor = field(init=False, repr=False, compare=False)  # [B, d]
    new: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, d] for each session
    precision: Tensor = field(init=False, repr=False, compare=False)  # [d, d]
    donors_only: bool = field(init=False, repr=False, compare=False)

    def fit_base(self, base: Base) -> None:
        self.base, self.new, self.donors_only = base.means(), (), base.donors_only
        within = base.features - self.base[base.labels]
        covariance = within.mT @ within / len(within)
        share = ledoit_wolf(within, covariance) if self.shrinkage is None else self.shrinkage
        shrunk = (1 - share) * covariance + share * covariance.trace() / len(covariance) * torch.eye(len(covariance))
        # The pseudo-inverse: without shrinkage, a dimension that never varies says nothing.
        self.precision = torch.linalg.pinv(shrunk, hermitian=True)

    def add_session(self, support: Support) -> None:
        self.new = (*self.new, support.features.mean(dim=-2))

    def scores(self, queries: Tensor) -> Tensor:
        groups = self.new if self.donors_only else (self.base, *self.new)
        return side_by_side([self._discriminants(queries, means) for means in groups])

    def _discriminants(self, queries: Tensor, means: Tensor) -> Tensor:
        """x P m - m P m / 2: minus half the squared Mahalanobis distance, but for what is the same for all classes."""
        weights = means @ self.precision
        return queries @ weights.mT - (weights * means).sum(dim=-1)[..., None, :] / 2


def ledoit_wolf(centred: Tensor, covariance: Tensor) -> float:
    """The share of the scaled identity that brings the covariance of [N, d] centred features nearest to the truth."""
    n, d = centred.shape
    target = covariance.trace() / d
    distance = covariance.square().sum() - d * target**2
    if distance <= 0:  # it is a multiple of the identity already
        return 1.0
    scatter = (centred.square().sum(dim=-1).square().mean() - covariance.square().sum()) / n
    return float((scatter / distance).clamp(0, 1))
