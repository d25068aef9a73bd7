"""Batched logistic regression against scikit-learn, one problem at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from fscil_bench import logistic
from fscil_bench.errors import FscilError
from fscil_bench.logistic import Axes, Linear, fit


def problems(count, n_classes, n, d, seed=0, apart=1.0):
    """Random features [count, n, d] of classes that overlap, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    centres = apart * rng.random((count, n_classes, d))
    features = centres[:, labels] + rng.random((count, n, d)) + 3  # far from the origin, as real features are
    return torch.from_numpy(features), torch.from_numpy(labels)


def by_scikit_learn(features, labels, c=1.0):
    model = LogisticRegression(C=c, tol=1e-8, max_iter=20_000).fit(features.numpy(), labels.numpy())
    return model.coef_, model.intercept_ - model.intercept_.mean()  # a number added to all intercepts changes nothing


@pytest.mark.parametrize(
    ("count", "n_classes", "n", "d", "c"),
    [(3, 5, 100, 8, 1.0), (2, 5, 25, 40, 1.0), (2, 3, 60, 6, 0.01), (2, 4, 30, 30, 10.0), (1, 30, 300, 12, 1.0)],
)
def test_coefficients_are_those_of_scikit_learn(count, n_classes, n, d, c):
    features, labels = problems(count, n_classes, n, d)
    found = fit(features, labels, n_classes, c=c, tol=1e-8)
    for i in range(count):
        weights, intercept = by_scikit_learn(features[i], labels, c)
        np.testing.assert_allclose(found.weights[i].numpy(), weights, atol=1e-3)
        ours = (found.intercept[i] - found.intercept[i].mean()).numpy()
        np.testing.assert_allclose(ours, intercept, atol=1e-2)  # of size 3 d: the features are far from the origin


def test_two_classes_have_a_weight_vector_each():
    """Their gap 2 w is scikit-learn's one vector at half the penalty: ||w||^2 + ||-w||^2 = ||2 w||^2 / 2."""
    features, labels = problems(1, 2, 50, 4)
    found = fit(features[0], labels, 2, tol=1e-9)
    gap, _ = by_scikit_learn(features[0], labels, c=2.0)
    np.testing.assert_allclose((found.weights[1] - found.weights[0]).numpy(), gap[0], atol=1e-3)
    torch.testing.assert_close(found.weights[0], -found.weights[1])


def test_a_problem_does_not_notice_its_company():
    features, labels = problems(6, 4, 40, 5)
    features[3] *= 30  # takes far longer than the others
    together = fit(features, labels, 4)
    for i in range(6):
        alone = fit(features[i], labels, 4)
        torch.testing.assert_close(together.weights[i], alone.weights, rtol=1e-6, atol=1e-8)


def test_leading_dimensions_and_labels_of_each_problem():
    features, labels = problems(6, 3, 30, 4)
    each = torch.stack([labels.roll(i) for i in range(6)])
    grid = fit(features.reshape(2, 3, 30, 4), each.reshape(2, 3, 30), 3)
    assert grid.weights.shape == (2, 3, 3, 4)
    assert grid.intercept.shape == (2, 3, 3)
    for i in range(6):
        torch.testing.assert_close(grid.weights[i // 3, i % 3], fit(features[i], each[i], 3).weights)


@given(seed=st.integers(0, 10_000), n=st.integers(6, 30), d=st.integers(1, 40))
@settings(deadline=None, max_examples=25)
def test_the_gradient_vanishes_at_the_solution(seed, n, d):
    features, labels = problems(1, 3, n, d, seed)
    found = fit(features[0], labels, 3, c=0.5, tol=1e-9)
    weights, intercept = (part.clone().requires_grad_() for part in found)
    loss = torch.nn.functional.cross_entropy(Linear(weights, intercept).scores(features[0]), labels, reduction="sum")
    (loss + weights.square().sum()).backward()  # 1 / (2 C) = 1
    assert float(weights.grad.abs().max()) < 1e-6 * n
    assert float(intercept.grad.abs().max()) < 1e-6 * n


@pytest.mark.parametrize("n", [60, 20])  # more samples than dimensions, and fewer
def test_turned_features_give_the_same_classifier(n):
    features, labels = problems(2, 4, n, 30)
    spread = torch.cov(torch.rand(100, 30, dtype=torch.float64).T)  # of anything: only the way changes
    axes = Axes.of(spread)
    np.testing.assert_allclose(axes.covariance(), spread, atol=1e-12)
    plain = fit(features, labels, 4, tol=1e-9)
    turned = fit(features @ axes.turn, labels, 4, tol=1e-9, axes=axes)
    torch.testing.assert_close(turned.weights, plain.weights, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(turned.scores(features), plain.scores(features), rtol=1e-4, atol=1e-4)
    begun = fit(features @ axes.turn, labels, 4, tol=1e-9, axes=axes, start=plain)
    torch.testing.assert_close(begun.weights, plain.weights, rtol=1e-4, atol=1e-5)


def test_the_first_guess_of_the_second_derivative():
    """Samples in no order of classes, all undecided: it is the true one if the classes' covariance is diagonal."""
    generator = torch.Generator().manual_seed(0)
    x, targets = torch.randn(1, 40, 5, dtype=torch.float64, generator=generator), torch.arange(40)[None] % 4
    spread = torch.rand(5, dtype=torch.float64, generator=generator)
    data = logistic._Data.of(x, targets, 4, 1.0, Axes(torch.eye(5, dtype=torch.float64), spread))
    share = torch.full((1, 4, 40), 0.25, dtype=torch.float64)
    vectors = torch.randn(1, 4, 6, dtype=torch.float64, generator=generator)
    means = torch.stack([x[0, targets[0] == c].mean(dim=0) for c in range(4)]) - x[0].mean(dim=0)
    undecided = 0.25 * 0.75
    guess = undecided * (torch.diag(spread) + means.mT @ means / 4) + torch.eye(5) / 40
    expected = torch.cat([vectors[..., :-1] @ torch.linalg.inv(guess), vectors[..., -1:] / undecided], dim=-1)
    torch.testing.assert_close(data.newton(share, vectors), expected)


def test_blocks_do_not_change_the_classifiers(monkeypatch):
    features, labels = problems(5, 3, 30, 4)
    together = fit(features, labels, 3)
    monkeypatch.setattr(logistic, "BLOCK_BYTES", 2 * 30 * 4 * 8)  # two problems at a time
    torch.testing.assert_close(fit(features, labels, 3).weights, together.weights, rtol=1e-6, atol=1e-8)


def test_a_class_without_samples_gets_no_weights():
    features, labels = problems(1, 3, 30, 4)
    found = fit(features[0], labels, 4, tol=1e-9)
    assert found.scores(features[0]).argmax(dim=-1).max() < 3


def test_a_start_changes_the_way_and_not_the_end():
    features, labels = problems(1, 4, 60, 90)
    three = labels < 3
    first = fit(features[0][three], labels[three], 3)
    start = first.widened(4)
    assert torch.equal(start.weights[3], torch.zeros(90, dtype=torch.float64))
    warm, cold = (fit(features[0], labels, 4, tol=1e-9, start=s) for s in (start, None))
    torch.testing.assert_close(warm.weights, cold.weights, rtol=1e-4, atol=1e-6)


def test_single_precision_agrees_to_its_digits():
    features, labels = problems(2, 4, 80, 6)
    small = fit(features, labels, 4, dtype=torch.float32)
    assert small.weights.dtype == torch.float32
    torch.testing.assert_close(small.weights.double(), fit(features, labels, 4).weights, rtol=1e-2, atol=1e-2)


def test_separable_classes_converge_too():
    features, labels = problems(1, 3, 12, 5, apart=50.0)
    found = fit(features[0], labels, 3)
    assert torch.equal(found.scores(features[0]).argmax(dim=-1), labels)


def test_what_has_not_converged_is_an_error():
    features, labels = problems(3, 5, 100, 8)
    with pytest.raises(FscilError, match="3 of 3 problems have not converged after 2 iterations"):
        fit(features, labels, 5, max_iter=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y[:-1], 3), "number of samples"),
        (lambda x, y: (x, y, 2), "labels must lie in 0 .. 1"),
        (lambda x, y: (x, y - 1, 3), "labels must lie in 0 .. 2"),
        (lambda x, y: (x * torch.nan, y, 3), "finite"),
        (lambda x, y: (x, y * 0, 1), "two classes or more"),
    ],
)
def test_bad_input_is_named(change, message):
    features, labels = problems(1, 3, 12, 4)
    with pytest.raises(ValueError, match=message):
        fit(*change(features[0], labels))


def test_a_search_cut_off_stands_where_it_looked_last(monkeypatch):
    monkeypatch.setattr(logistic, "LINE_SEARCH", 3)
    features, labels = problems(2, 3, 30, 4)
    state = logistic._State.begin(logistic._Data.of(features, labels.expand(2, -1), 3, 1.0, None), None)
    direction = -1e4 * state.gradient  # far too long for three trials
    length = logistic._search(state, direction, logistic._dot(state.gradient, direction))
    torch.testing.assert_close(state.logits, state.data.logits(state.theta + length[:, None, None] * direction))
