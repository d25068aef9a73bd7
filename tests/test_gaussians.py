"""Sampling from roots of covariances."""

import numpy as np
import pytest
import torch

from fscil_bench.gaussians import Gaussians, covariance_root


@pytest.mark.parametrize("images", [3, 6, 40])  # fewer than, as many as and more than the dimensions
def test_roots_are_roots_of_the_unbiased_covariance(images):
    features = torch.rand(images, 6, dtype=torch.float64)
    found = Gaussians.of([features, features[:2]])
    np.testing.assert_allclose(found.means[0], features.mean(dim=0))
    np.testing.assert_allclose(found.roots[0].mT @ found.roots[0], np.cov(features.numpy().T), atol=1e-12)
    np.testing.assert_allclose(found.roots[1].mT @ found.roots[1], np.cov(features[:2].numpy().T), atol=1e-12)
    assert found.roots.shape == (2, min(images, 6), 6)
    root = covariance_root(features)
    np.testing.assert_allclose(root.mT @ root, np.cov(features.numpy().T), atol=1e-12)


def test_samples_have_the_mean_and_the_covariance():
    features = torch.rand(4, 5, dtype=torch.float64) * torch.arange(1, 6)
    drawn = Gaussians.of([features]).sample(200_000, torch.Generator().manual_seed(0))[0].numpy()
    np.testing.assert_allclose(drawn.mean(axis=0), features.mean(dim=0), atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(features.numpy().T), atol=0.03)


def test_one_image_has_no_spread():
    one = torch.rand(1, 5, dtype=torch.float64)
    drawn = Gaussians.of([one]).sample(3, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(drawn[0], one.expand(3, 5))
