"""FeCAM, calibrated: a Mahalanobis distance for each class, new classes borrowing means and covariances."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fscil_bench.covariances import Covariances, whitened
from fscil_bench.errors import FscilError
from fscil_bench.gaussians import covariance_root
from fscil_bench.method import Base, Default, PrototypeMethod, Support, cosine, setting, side_by_side, tukey, unit

GROUP_BYTES = 128 * 2**20  # of matrices and whitened queries held at a time
JITTER = 1e-6  # on the diagonal of correlations, which is 1: all of them then have a Cholesky factor


@dataclass(kw_only=True)
class FeCAM(PrototypeMethod):
    """Mahalanobis distance with a correlation matrix for each class; new classes mix in similar base classes.

    With little shrinkage new classes lose, and the more so the more dimensions there are. The mean of K shots errs by a
    K-th of the variance in every dimension, which adds to all distances; and the shots' own covariance has K - 1
    directions, so as a correlation it narrows all others. Both fade as the shrinkage grows.

    Base covariances are kept as triangles, 0.7 GB with 1280 dimensions and 100 base classes; all else is made when
    queries are scored, a few classes at a time. Neither paper has few-shot episodes.
    """

    paper = (
        "Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions, NeurIPS 2023; Goswami et al., "
        "Calibrating Higher-Order Statistics for Few-Shot Class-Incremental Learning, CVPRW 2024"
    )
    equations = (
        "transformation, shrinkage, correlation and distance from the first paper's code; the mixtures of means (as "
        "TEEN's) and of covariances (plus the shots' own) from the second paper's code"
    )
    baseline = "protonet"
    deviations = (
        "transformation and form of the shrinkage are those of the first paper's code: the second has none of the "
        "former (its features can be negative) and adds 100 to the diagonal, whatever the scale of the features, for "
        "the first one's shrinkage is said there to hurt with few shots",
        "the mean covariance that shrinkage adds is of all pairs; the first paper's code leaves out those that are 0",
        "Cholesky factors of correlations with 1e-6 added to their diagonal; the papers' code has pseudo-inverses",
        "shrinkage 10 where the first paper's code has 1: on cifar100-val as good as the best, HMean 35.95 against "
        "25.93; beyond it little changes, 35.86 at 1000, where covariances hardly count",
        "correlations as in the first paper's code: the second's takes correlations of the covariance's rows instead",
        "the same classifier in session 0 as later; the first paper's code has the learned head there, no covariance",
        "the covariance of a new class is kept as a triangular root, which of few shots is smaller than the matrix",
        "negative features keep their sign when transformed: sign(x) |x|^lambda",
    )
    defaults = (Default({"dataset": "cifar100"}, {"own": 0.75}, origin="code"),)
    costly = ("fsl",)

    own: float = setting(0.9, "weight of a new class's own mean against the base mixture", origin="code", low=0, high=1)
    power: float = setting(0.5, "lambda of Tukey's ladder of powers; 1 leaves features alone", origin="code", low=0.01)
    # The same for all datasets, and of these as good as the best:
    # `fscil-bench sweep --method fecam --dataset cifar100-val --grid shrinkage=1,2,3,5,7,10,15,20,30,50,100,300,1000`.
    shrinkage: float = setting(
        10.0, "gamma_1 = gamma_2: mean variance and covariance added, twice", origin="val", low=1e-6
    )
    tau: float = setting(16.0, "sharpness of the softmax over base prototypes", origin="code", low=0)

    covariances: Covariances = field(init=False, repr=False, compare=False)  # of the base classes
    shares: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, B] of each session
    spreads: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, r, d]: roots of own covariances

    def fit_base(self, base: Base) -> None:
        super().fit_base(base)
        self.shares, self.spreads = (), ()
        self.covariances = Covariances.of(base.by_class(tukey(base.features, self.power)))

    def prototypes(self, support: Support) -> Tensor:
        means = support.features.mean(dim=-2)
        self.shares = (*self.shares, (self.tau * cosine(means, self.base)).softmax(dim=-1))
        self.spreads = (*self.spreads, torch.linalg.qr(covariance_root(tukey(support.features, self.power))).R)
        return means

    def calibrate(self, new: Tensor, base: Tensor) -> Tensor:
        return self.own * unit(new) + (1 - self.own) * unit(self.shares[-1] @ unit(base))

    def encode(self, queries: Tensor) -> Tensor:
        """Transformed queries, and beside them their distances to the base classes, which no session changes."""
        queries = unit(tukey(queries, self.power))
        if self.donors_only:
            return queries
        alone = torch.eye(len(self.base), dtype=queries.dtype)  # a base class has its own covariance
        none = self.base.new_zeros(len(self.base), 1, self.base.shape[1])
        distances = self._distances(queries.flatten(0, -2), self.base, alone, none)
        return torch.cat([queries, distances.reshape(*queries.shape[:-1], -1)], dim=-1)

    def scores(self, queries: Tensor) -> Tensor:
        d = self.base.shape[-1]
        groups = zip(self.new, self.shares, self.spreads, strict=True)
        parts = [self._distances(queries[..., :d], *group) for group in groups]
        if not self.donors_only:
            parts = [queries[..., d:], *parts]
        return self.adjusted(-side_by_side(parts))

    def _distances(self, queries: Tensor, means: Tensor, shares: Tensor, spreads: Tensor) -> Tensor:
        """Squared Mahalanobis distances, [*, Q, C], of classes [*, C, d] with shares [*, C, B] of base covariances.

        Queries are whitened in float32, nearly all the work there is: correlations are shrunk, so little is lost.
        """
        *batch, way, d = means.shape
        count = queries.shape[-2]
        means = unit(tukey(means, self.power)).reshape(-1, d, 1)
        spreads = spreads.reshape(len(means), -1, d)
        upright = queries.mT.contiguous()  # [*, d, Q]
        few = max(1, GROUP_BYTES // (8 * d * (3 * d + count)))
        mixtures = self.covariances.mixtures(shares.reshape(len(means), -1), few)
        room = upright.new_empty(min(few, len(means)), d, count, dtype=torch.float32)  # new memory is slow to get
        parts = []
        for chosen, mixed in zip(torch.arange(len(means)).split(few), mixtures, strict=True):
            root = torch.linalg.cholesky(self._correlations(mixed + spreads[chosen].mT @ spreads[chosen]))
            of = upright if upright.ndim == 2 else upright.reshape(-1, d, count)[chosen // way]
            away = torch.sub(of, means[chosen], out=room[: len(chosen)])
            parts.append(whitened(root.float(), away).square_().sum(dim=-2).double())
        return torch.cat(parts).reshape(*batch, way, count).mT

    def _correlations(self, covariances: Tensor) -> Tensor:
        """Covariances [c, d, d], shrunk and normalised; they are overwritten.

        Shrinking adds gamma times the mean variance to the diagonal and gamma times the mean covariance elsewhere. The
        first paper's code does it twice; both means have then grown by 1 + gamma, so it is (1 + gamma)^2 - 1 at once.
        (Its mean is of covariances that are not zero: another one where a dimension never varies within a class.)
        """
        d = covariances.shape[-1]
        diagonal = covariances.diagonal(dim1=-2, dim2=-1)
        variance = diagonal.mean(dim=-1)
        covariance = (covariances.sum(dim=(-2, -1)) - d * variance) / max(d * (d - 1), 1)
        strength = (1 + self.shrinkage) ** 2 - 1
        covariances += strength * covariance[:, None, None]
        diagonal += strength * (variance - covariance)[:, None]
        if not (diagonal > 0).all():
            raise FscilError("fecam: the features of a class never vary, so there are no correlations; use other data")
        scale = diagonal.rsqrt()
        covariances.mul_(scale[:, :, None]).mul_(scale[:, None, :])
        diagonal += JITTER
        return covariances
