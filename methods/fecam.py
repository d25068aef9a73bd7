"""FeCAM with calibrated covariances: a Mahalanobis distance for each class, new classes borrowing from base ones."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fscil_bench.gaussians import covariance_root
from fscil_bench.method import Base, PrototypeMethod, Support, cosine, setting, side_by_side, tukey, unit

GROUP_BYTES = 256 * 2**20  # of matrices and whitened queries held at a time


@dataclass(kw_only=True)
class FeCAM(PrototypeMethod):
    """Mahalanobis distance with a correlation matrix for each class; new classes mix those of similar base classes.

    Base covariances are kept as triangles, and all else is made when queries are scored, a few classes at a time: with
    1280 dimensions and 100 base classes that is 0.7 GB. `fecam+teen` calibrates the means as well, as the second paper.
    """

    paper = (
        "Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions, NeurIPS 2023; Goswami et al., "
        "Calibrating Higher-Order Statistics for Few-Shot Class-Incremental Learning, CVPRW 2024"
    )
    baseline = "protonet"
    deviations = (
        "covariances of new classes are calibrated as in the second paper: the base classes' covariances, weighted by "
        "a softmax over prototypes, plus the shots' own",
        "transformation and shrinkage are those of the first paper's code: the second has none of the former (its "
        "features can be negative) and adds 100 to the diagonal, whatever the scale of the features",
        "correlations as both papers say: the second's code takes the correlation of the covariance's rows instead",
        "the same classifier in session 0 as later; the first paper's code has the learned head there, no covariance",
        "negative features keep their sign when transformed: sign(x) |x|^lambda",
    )
    variants = ({"shrinkage": 100.0},)  # about as much as the second paper's code adds
    costly = True

    power: float = setting(0.5, "lambda of Tukey's ladder of powers; 1 leaves features alone", low=0.01)
    shrinkage: float = setting(1.0, "gamma_1 = gamma_2: mean variance and covariance added, twice", low=1e-6)
    tau: float = setting(16.0, "sharpness of the softmax over base prototypes", low=0)

    triangles: Tensor = field(init=False, repr=False, compare=False)  # [B, d (d + 1) / 2]: base covariances
    shares: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, B] of each session
    spreads: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, K, d]: roots of own covariances

    def fit_base(self, base: Base) -> None:
        super().fit_base(base)
        self.shares, self.spreads = (), ()
        d = base.features.shape[-1]
        rows, columns = torch.triu_indices(d, d)
        self.triangles = base.features.new_empty(base.n_classes, len(rows))
        for triangle, features in zip(self.triangles, base.by_class(tukey(base.features, self.power)), strict=True):
            root = covariance_root(features)
            triangle[:] = (root.mT @ root)[rows, columns]

    def prototypes(self, support: Support) -> Tensor:
        means = support.features.mean(dim=-2)
        self.shares = (*self.shares, (self.tau * cosine(means, self.base)).softmax(dim=-1))
        self.spreads = (*self.spreads, covariance_root(tukey(support.features, self.power)))
        return means

    def scores(self, queries: Tensor) -> Tensor:
        queries = unit(tukey(queries, self.power))
        groups = list(zip(self.new, self.shares, self.spreads, strict=True))
        if not self.donors_only:
            alone = torch.eye(len(self.base), dtype=self.base.dtype)  # a base class has its own covariance
            groups = [(self.base, alone, self.base.new_zeros(*self.base.shape[:1], 1, self.base.shape[1])), *groups]
        return self.adjusted(side_by_side([-self._distances(queries, *group) for group in groups]))

    def _distances(self, queries: Tensor, means: Tensor, shares: Tensor, spreads: Tensor) -> Tensor:
        """Squared Mahalanobis distances, [*, Q, C], of classes [*, C, d] with shares [*, C, B] of base covariances."""
        *batch, way, d = means.shape
        count = queries.shape[-2]
        means = unit(tukey(means, self.power)).reshape(-1, d)
        shares, spreads = shares.reshape(len(means), -1), spreads.reshape(len(means), -1, d)
        size = max(1, GROUP_BYTES // (8 * d * (3 * d + 2 * count)))
        parts = []
        for chosen in torch.arange(len(means)).split(size):
            root = torch.linalg.cholesky(self._correlations(shares[chosen], spreads[chosen]))
            of = queries if queries.ndim == 2 else queries.reshape(-1, count, d)[chosen // way]
            away = (of - means[chosen, None]).mT
            parts.append(torch.linalg.solve_triangular(root, away, upper=False).square().sum(dim=-2))
        return torch.cat(parts).reshape(*batch, way, count).mT

    def _correlations(self, shares: Tensor, spreads: Tensor) -> Tensor:
        """Mixed, shrunk and normalised covariances: [c, B], [c, K, d] -> [c, d, d]."""
        d = spreads.shape[-1]
        rows, columns = torch.triu_indices(d, d)
        covariances = spreads.new_zeros(len(shares), d, d)
        covariances[:, rows, columns] = shares @ self.triangles
        covariances = covariances + covariances.triu(1).mT + spreads.mT @ spreads
        for _ in range(2):  # "we apply covariance shrinkage 2 times", says the first paper's code
            covariances = self._shrunk(covariances)
        deviation = covariances.diagonal(dim1=-2, dim2=-1).sqrt()
        return covariances / (deviation[:, :, None] * deviation[:, None, :])

    def _shrunk(self, covariances: Tensor) -> Tensor:
        """Plus gamma times the mean variance on the diagonal and the mean covariance elsewhere."""
        d = covariances.shape[-1]
        variance = covariances.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
        covariance = (covariances.sum(dim=(-2, -1)) - d * variance) / max(d * (d - 1), 1)
        more = covariance[:, None, None] + (variance - covariance)[:, None, None] * torch.eye(d)
        return covariances + self.shrinkage * more
