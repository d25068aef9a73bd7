"""Ridge regression onto classes: from a Gram matrix where images are many, from their inner products where few."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCKS = 4  # of the columns of a Gram matrix: blocks above its diagonal need not be computed


def gram_matrix(features: Tensor) -> Tensor:
    """X^T X of [n, d] features, of which the blocks above the diagonal are the mirrored ones below."""
    d = features.shape[-1]
    gram = features.new_empty(d, d)
    step = -(-d // BLOCKS)
    for first in range(0, d, step):
        rows = slice(first, first + step)
        product = features[:, rows].mT @ features[:, : first + step]
        gram[rows, : first + step] = product
        gram[:first, rows] = product[:, :first].mT
    return gram


def solve(gram: Tensor, sums: Tensor, ridge: float) -> Tensor:
    """Weights (X^T X + ridge)^-1 X^T Y, [d, C], of the Gram matrix [d, d] and the sum of every class [C, d]."""
    return torch.cholesky_solve(sums.mT, torch.linalg.cholesky(_ridged(gram, ridge)))


def dual_scores(classes: Tensor, queries: Tensor, ridge: float) -> Tensor:
    """Q X^T (X X^T + ridge)^-1 Y, the same where images are fewer than dimensions: [*, W, n, d], [*, Q, d]."""
    *batch, way, count, d = classes.shape
    features = classes.reshape(*batch, way * count, d)
    wanted = torch.eye(way, dtype=features.dtype).repeat_interleave(count, dim=0)
    root = torch.linalg.cholesky(_ridged(features @ features.mT, ridge))
    return (queries @ features.mT) @ torch.cholesky_solve(wanted.expand(*batch, *wanted.shape), root)


def best_ridge(ridges: Sequence[float], gram: Tensor, sums: Tensor, held_out: Tensor, labels: Tensor) -> float:
    """The ridge whose answers to held-out images are nearest to one for their class and zero for the others."""
    wanted = F.one_hot(labels, len(sums)).to(held_out.dtype)
    errors = {}
    for ridge in ridges:
        root, failed = torch.linalg.cholesky_ex(_ridged(gram, ridge))
        if not failed:  # it fails where the ridge is lost in rounding
            errors[ridge] = float((held_out @ torch.cholesky_solve(sums.mT, root) - wanted).square().mean())
    return min(errors, key=errors.__getitem__)


def _ridged(gram: Tensor, ridge: float) -> Tensor:
    return gram + ridge * torch.eye(gram.shape[-1], dtype=gram.dtype)
