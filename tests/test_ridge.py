"""Ridge regression: from the Gram matrix, from inner products of images, and scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from fscil_bench.ridge import best_ridge, dual_scores, gram_matrix, solve

WAY, COUNT, QUERIES = 3, 5, 7


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def scikit(features, ridge, queries):
    """Of [W, n, d] features of classes."""
    wanted = np.eye(len(features)).repeat(features.shape[1], axis=0)
    fitted = Ridge(alpha=ridge, fit_intercept=False).fit(features.flatten(0, 1).numpy(), wanted)
    return fitted.predict(queries.numpy())


def primal(features, ridge, queries):
    return queries @ solve(gram_matrix(features.flatten(0, 1)), features.sum(dim=1), ridge)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 9, 16, 50])  # blocks that come out even and that do not
def test_the_gram_matrix(d):
    features = normal(20, d)
    torch.testing.assert_close(gram_matrix(features), features.T @ features)


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("d", [4, 15, 40])  # fewer than, as many as and more than the images
def test_both_forms_are_scikit_learns(d, ridge):
    features, queries = normal(WAY, COUNT, d), normal(QUERIES, d, seed=1)
    expected = scikit(features, ridge, queries)
    np.testing.assert_allclose(primal(features, ridge, queries), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(dual_scores(features, queries, ridge), expected, rtol=1e-6, atol=1e-9)


def test_many_problems_at_once_are_each_for_itself():
    features, queries = normal(4, WAY, COUNT, 30), normal(4, QUERIES, 30, seed=1)
    together = dual_scores(features, queries, 0.5)
    for got, some, of in zip(together, features, queries, strict=True):
        torch.testing.assert_close(got, primal(some, 0.5, of))


def test_the_order_of_classes_and_of_images_does_not_matter():
    features, queries = normal(WAY, COUNT, 30), normal(QUERIES, 30, seed=1)
    for scores in (primal, lambda features, ridge, queries: dual_scores(features, queries, ridge)):
        expected = scores(features, 0.5, queries)
        torch.testing.assert_close(scores(features.flip(0), 0.5, queries), expected.flip(1))
        torch.testing.assert_close(scores(features.flip(1), 0.5, queries), expected)


def test_the_best_ridge_answers_held_out_images_best():
    ridges = [10.0**power for power in range(-8, 9)]
    labels = torch.arange(60) % 3
    x = normal(60, 10) + torch.eye(3, 10, dtype=torch.float64)[labels]
    wanted = torch.eye(3, dtype=torch.float64)[labels]
    errors = []
    for ridge in ridges:
        predicted = Ridge(alpha=ridge, fit_intercept=False).fit(x[:40], wanted[:40]).predict(x[40:])
        errors.append(((predicted - wanted[40:].numpy()) ** 2).mean())
    assert 0 < int(np.argmin(errors)) < len(ridges) - 1
    best = best_ridge(ridges, gram_matrix(x[:40]), wanted[:40].T @ x[:40], x[40:], labels[40:])
    assert best == ridges[int(np.argmin(errors))]


def test_a_ridge_lost_in_rounding_is_passed_over():
    x = torch.tensor(
        [[1e6, 1e6], [1e6, 1e6], [1e6, 1e6]], dtype=torch.float64
    )  # of rank one: no factor without a ridge
    sums = torch.stack([x[:2].sum(dim=0), x[2]])
    found = best_ridge([1e-8, 1.0, 1e6], gram_matrix(x), sums, x, torch.tensor([0, 0, 1]))
    assert found > 1e-8
