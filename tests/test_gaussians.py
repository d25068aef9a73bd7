"""Sampling from roots of covariances."""

import numpy as np
import pytest
import torch

from fscil_bench.gaussians import Gaussians, Stock, covariance_root, noise, symmetric_root


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


@pytest.mark.parametrize("images", [4, 6, 40])
def test_samples_move_no_more_than_the_features(images):
    features = torch.rand(images, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    features[:, 2] = 0  # a dead dimension
    features[:, 3] = features[:, 4]  # and one that says nothing new
    rounded = features + 1e-6 * (torch.rand(features.shape, dtype=torch.float64) - 0.5) * (features != 0)
    drawn = [Gaussians.of([x]).sample(50, torch.Generator().manual_seed(0)) for x in (features, rounded)]
    torch.testing.assert_close(*drawn, rtol=0, atol=1e-5)


def test_the_symmetric_root_is_unique():
    """Of a covariance with equal eigenvalues eigenvectors are arbitrary; the root is not."""
    torch.testing.assert_close(symmetric_root(4 * torch.eye(3)), 2 * torch.eye(3))
    assert symmetric_root(torch.tensor([[1.0, 0.0], [0.0, -1e-9]])).isfinite().all()


def test_the_pooled_covariance_is_the_mean_one_and_turns_with_the_features():
    classes = [torch.rand(n, 4, dtype=torch.float64) for n in (3, 9)]
    found = Gaussians.of(classes)
    expected = np.mean([np.cov(x.numpy().T) for x in classes], axis=0)
    np.testing.assert_allclose(found.pooled(), expected, atol=1e-12)
    turn = torch.linalg.qr(torch.rand(4, 4, dtype=torch.float64)).Q
    np.testing.assert_allclose(found.turned(turn).pooled(), turn.mT.numpy() @ expected @ turn.numpy(), atol=1e-12)


def test_a_stock_gives_sums_of_rows_that_nobody_else_in_the_episode_has():
    rows = torch.arange(2 * 12, dtype=torch.float64).reshape(2, 12, 1)  # of class 0: 0 .. 11, of class 1: 12 .. 23
    classes = torch.tensor([[[0, 1], [0, 1], [1, 0]], [[0, 1], [1, 1], [0, 0]]])
    got = Stock(rows).sums(classes, 4, torch.Generator().manual_seed(3))
    assert got.shape == (2, 3, 4, 1)
    begin = torch.randint(12, (2, 1, 1, 2), generator=torch.Generator().manual_seed(3)).reshape(2, 2)
    for episode in range(2):
        for user in range(3):
            for i in range(4):
                places = (begin[episode] + user * 4 + i) % 12
                parts = [float(rows[c, place, 0]) for c, place in zip(classes[episode, user], places, strict=True)]
                assert float(got[episode, user, i, 0]) == sum(parts)
    used = (begin[0, 0] + torch.arange(12)) % 12
    assert len(used.unique()) == 12


def test_noise_from_a_stock_has_the_covariance():
    features = torch.rand(30, 3, dtype=torch.float64) * torch.arange(1, 4)
    roots = Gaussians.of([features, 2 * features]).roots
    stock = Stock(noise(roots, 100_000, torch.Generator().manual_seed(0)) / 2**0.5)
    got = stock.sums(torch.tensor([[[0, 1]]]), 100_000, torch.Generator().manual_seed(1))[0, 0]
    np.testing.assert_allclose(np.cov(got.numpy().T), 2.5 * np.cov(features.numpy().T), atol=0.03)  # (1 + 4) / 2
