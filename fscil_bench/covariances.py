"""Covariances of classes, mixtures of them, which new classes borrow from base classes, and whitening by them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fscil_bench.gaussians import covariance_root

GROUP_BYTES = 128 * 2**20  # of mixed triangles held at a time
BLOCK = 256  # rows of a triangular system solved at a time


@dataclass(frozen=True)
class Covariances:
    """The unbiased covariances of B classes; upper triangles alone are kept: half the memory, half the work to mix."""

    triangles: Tensor  # [B, d (d + 1) / 2]
    d: int

    @classmethod
    def of(cls, classes: Sequence[Tensor]) -> "Covariances":
        """Of classes of [n, d] features."""
        d = classes[0].shape[-1]
        rows, columns = torch.triu_indices(d, d)
        triangles = classes[0].new_empty(len(classes), len(rows))
        for triangle, features in zip(triangles, classes, strict=True):
            root = covariance_root(features)
            triangle[:] = (root.mT @ root)[rows, columns]
        return cls(triangles, d)

    def mixtures(self, shares: Tensor, step: int) -> Iterator[Tensor]:
        """The sum over b of shares[c, b] times covariance b, for [C, B] shares: `step` classes at a time, [c, d, d]."""
        # Every product reads all triangles, so many classes are mixed at once; whole matrices are made for a few.
        many = step * max(1, GROUP_BYTES // (self.triangles.element_size() * self.triangles.shape[1] * step))
        rows, columns = torch.triu_indices(self.d, self.d)
        for part in shares.split(many):
            for triangles in (part @ self.triangles).split(step):
                upper = triangles.new_zeros(len(triangles), self.d, self.d)
                upper[:, rows, columns] = triangles
                yield upper + upper.triu(1).mT


def whitened(root: Tensor, away: Tensor) -> Tensor:
    """L^-1 x of lower triangles [c, d, d] and columns [c, d, Q], which are overwritten.

    By blocks of rows it is nearly all matrix products, faster than one triangular solution.
    """
    for start in range(0, root.shape[-1], BLOCK):
        rows = slice(start, start + BLOCK)
        corner = root[:, rows, rows]
        whole = torch.eye(corner.shape[-1], dtype=root.dtype)
        inverse = torch.linalg.solve_triangular(corner, whole.expand_as(corner), upper=False)
        rest = torch.baddbmm(away[:, rows], root[:, rows, :start], away[:, :start], alpha=-1)
        torch.bmm(inverse, rest, out=away[:, rows])
    return away
