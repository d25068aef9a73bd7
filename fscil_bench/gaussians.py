"""Normal distributions of classes, kept as roots of their covariances: no covariance matrix is ever made or factored.

A class with n images in d dimensions has a covariance of rank n - 1 at most. Its root has min(n, d) rows, and a sample
is the mean plus a combination of these rows with standard normal weights, be the covariance singular or not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Gaussians:
    """The normal distributions of B classes."""

    means: Tensor  # [B, d]
    roots: Tensor  # [B, r, d]: the covariance of class b is roots[b].T @ roots[b]

    @classmethod
    def of(cls, classes: Sequence[Tensor]) -> "Gaussians":
        """Means and unbiased covariances of classes of [n, d] features; one image has no spread."""
        means = torch.stack([features.mean(dim=0) for features in classes])
        rows = min(max(len(features) for features in classes), means.shape[-1])
        roots = means.new_zeros(len(classes), rows, means.shape[-1])
        for root, features in zip(roots, classes, strict=True):
            small = torch.linalg.qr(covariance_root(features), mode="r").R
            root[: len(small)] = small
        return cls(means, roots)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` samples of each class, [B, count, d]."""
        return self.means[:, None] + noise(self.roots, count, generator)


def covariance_root(features: Tensor) -> Tensor:
    """A root of the unbiased covariance of [*, n, d] features: [*, n, d]; one image has no spread."""
    centred = features - features.mean(dim=-2, keepdim=True)
    return centred / math.sqrt(max(features.shape[-2] - 1, 1))


def noise(roots: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Samples of mean zero of the covariances with these roots, [*, r, d] -> [*, count, d]."""
    return normal((*roots.shape[:-2], count, roots.shape[-2]), roots, generator) @ roots


def normal(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of the same type as `like`."""
    return torch.randn(*shape, generator=generator, dtype=like.dtype)
