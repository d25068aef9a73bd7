"""Normal distributions of classes, kept as roots of their covariances.

A class with n images in d dimensions has a covariance of rank n - 1 at most. Its root has min(n, d) rows, and a sample
is the mean plus a combination of these rows with standard normal weights, be the covariance singular or not. Roots are
continuous in the features, so that with the same weights samples do not jump where the last digits of a feature change:
the images themselves where they are few, the symmetric root elsewhere. Triangles and eigenvectors would jump.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


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
            small = covariance_root(features)
            root[: min(small.shape)] = small if len(small) <= small.shape[1] else symmetric_root(small.mT @ small)
        return cls(means, roots)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` samples of each class, [B, count, d]."""
        return self.means[:, None] + noise(self.roots, count, generator)

    def pooled(self) -> Tensor:
        """The mean of the covariances, [d, d]."""
        rows = self.roots.flatten(0, 1)
        return rows.mT @ rows / len(self.roots)

    def turned(self, turn: Tensor) -> "Gaussians":
        """Those of features times `turn`."""
        return Gaussians(self.means @ turn, self.roots @ turn)

    def to(self, dtype: torch.dtype) -> "Gaussians":
        return Gaussians(self.means.to(dtype), self.roots.to(dtype))


@dataclass(frozen=True)
class Stock:
    """Noise of B classes, drawn once: for thousands of episodes, where drawing it anew would take most of the time.

    Every row is a sample of its class. Who takes some gets rows that follow each other from a random place on, so two
    episodes seldom have the same ones together.
    """

    rows: Tensor  # [B, size, d]

    def sums(self, classes: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Sums of noise of k classes each: [E, m, k] -> [E, m, count, d]. The m of an episode take rows in turn."""
        _, size, d = self.rows.shape
        episodes, each, k = classes.shape
        begin = torch.randint(size, (episodes, 1, 1, k), generator=generator)
        turns = torch.arange(each * count).reshape(1, each, count, 1)
        wanted = classes[:, :, None] * size + (begin + turns) % size
        return embedding_bag(wanted.reshape(-1, k), self.rows.flatten(0, 1), mode="sum").reshape(*wanted.shape[:-1], d)


def covariance_root(features: Tensor) -> Tensor:
    """A root of the unbiased covariance of [*, n, d] features: [*, n, d]; one image has no spread."""
    centred = features - features.mean(dim=-2, keepdim=True)
    return centred / math.sqrt(max(features.shape[-2] - 1, 1))


def symmetric_root(covariance: Tensor) -> Tensor:
    """The one symmetric root without negative eigenvalues, [d, d]; what rounding makes negative counts as zero."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.mT
    return root


def noise(roots: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Samples of mean zero of the covariances with these roots, [*, r, d] -> [*, count, d]."""
    return normal((*roots.shape[:-2], count, roots.shape[-2]), roots, generator) @ roots


def normal(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of the same type as `like`."""
    return torch.randn(*shape, generator=generator, dtype=like.dtype)
