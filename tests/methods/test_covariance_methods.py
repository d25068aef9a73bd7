"""LDA, FeCAM and RanPAC against slow implementations with whole matrices, and against scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from fscil_bench.method import Base, Support
from fscil_bench.registry import configure
from fscil_bench.testing import BASE_CLASSES, toy


def fitted(name, data, draw=0, **values):
    method = configure(name, "cub200", {key: str(value) for key, value in values.items()}).method
    method.generator = torch.Generator().manual_seed(0)
    method.fit_base(data.base)
    for support in data.sessions:
        method.add_session(Support(support.features if draw is None else support.features[draw]))
    return method


def classes_of(data):
    features, labels = data.base.features.numpy(), data.base.labels.numpy()
    return [features[labels == c] for c in range(BASE_CLASSES)]


def shots_of(data, draw=0):
    return [shots.numpy() for s in data.sessions for shots in s.features[draw]]


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("shrinkage", [0.001, 0.3, 1.0])
def test_lda_is_scikit_learns_on_base_classes(shrinkage):
    data = toy()
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
    # scikit-learn shrinks correlations after scaling each dimension: give it scaled ones, and us the same
    within = data.base.features - data.base.means()[data.base.labels]
    scale = within.square().mean(dim=0).sqrt()
    base = Base(data.base.features / scale, data.base.labels, BASE_CLASSES)
    method = configure("lda", "cub200", {"shrinkage": str(shrinkage)}).method
    method.fit_base(base)
    reference.fit(base.features.numpy(), base.labels.numpy())
    got, expected = method.scores(data.queries / scale), reference.decision_function((data.queries / scale).numpy())
    np.testing.assert_allclose(got - got.mean(dim=1, keepdim=True), expected - expected.mean(axis=1, keepdims=True))


def test_lda_is_the_nearest_mean_by_mahalanobis_distance():
    data = toy()
    method = fitted("lda", data)
    classes = classes_of(data)
    within = np.concatenate([x - x.mean(axis=0) for x in classes])
    share = ledoit_wolf_shrinkage(within, assume_centered=True)
    covariance = within.T @ within / len(within)
    shrunk = (1 - share) * covariance + share * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    inverse = np.linalg.inv(shrunk)
    means = [x.mean(axis=0) for x in (*classes, *shots_of(data))]
    distances = [[(q - m) @ inverse @ (q - m) for m in means] for q in data.queries.numpy()]
    own = [q @ inverse @ q for q in data.queries.numpy()]
    np.testing.assert_allclose(method.scores(data.queries), -np.array(distances) / 2 + np.array(own)[:, None] / 2)


@given(n=st.integers(5, 60), d=st.integers(1, 12), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_the_shrinkage_is_ledoit_and_wolfs(n, d, seed):
    from fscil_bench_methods.lda import ledoit_wolf

    x = np.random.default_rng(seed).normal(size=(n, d)) * np.arange(1, d + 1)
    got = ledoit_wolf(torch.from_numpy(x), torch.from_numpy(x.T @ x / n))
    if d > 1:  # in one dimension every share gives the same
        assert got == pytest.approx(ledoit_wolf_shrinkage(x, assume_centered=True), abs=1e-9)


def test_lda_without_shrinkage_ignores_a_dimension_that_never_varies():
    data = toy()
    still = data.base.features.clone()
    still[:, 3] = 1.0
    method = configure("lda", "cub200", {"shrinkage": "0"}).method
    method.fit_base(Base(still, data.base.labels, BASE_CLASSES))
    assert method.scores(data.queries).isfinite().all()


def slow_fecam(data, shrinkage=1.0, tau=16.0, draw=0):
    """Matrix by matrix, inverse by inverse."""
    classes, shots = classes_of(data), shots_of(data, draw)
    base_means = np.stack([x.mean(axis=0) for x in classes])
    base_covariances = [np.cov(np.sqrt(x).T) for x in classes]
    covariances, means = list(base_covariances), list(base_means)
    for x in shots:
        similarity = tau * unit(base_means) @ unit(x.mean(axis=0))
        weights = np.exp(similarity - similarity.max())
        weights /= weights.sum()
        covariances.append(sum(w * c for w, c in zip(weights, base_covariances, strict=True)) + np.cov(np.sqrt(x).T))
        means.append(x.mean(axis=0))
    scores = np.empty((len(data.queries), len(means)))
    for c, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        d = len(mean)
        for _ in range(2):
            on = np.mean(np.diag(covariance))
            off = covariance[~np.eye(d, dtype=bool)].mean()
            covariance = covariance + shrinkage * (on * np.eye(d) + off * (1 - np.eye(d)))  # noqa: PLW2901
        deviation = np.sqrt(np.diag(covariance))
        inverse = np.linalg.inv(covariance / np.outer(deviation, deviation))
        for i, query in enumerate(data.queries.numpy()):
            away = unit(np.sqrt(query)) - unit(np.sqrt(mean))
            scores[i, c] = -away @ inverse @ away
    return scores


@pytest.mark.parametrize("shrinkage", [0.1, 1.0, 100.0])
def test_fecam_is_the_mahalanobis_distance_with_mixed_correlations(shrinkage):
    data = toy()
    got = fitted("fecam", data, shrinkage=shrinkage).scores(data.queries)
    np.testing.assert_allclose(got, slow_fecam(data, shrinkage), rtol=1e-8)


def test_fecam_takes_draws_together_and_in_parts(monkeypatch):
    data = toy()
    expected = np.stack([slow_fecam(data, draw=i) for i in range(3)])
    np.testing.assert_allclose(fitted("fecam", data, draw=None).scores(data.queries), expected, rtol=1e-8)
    monkeypatch.setattr("fscil_bench_methods.fecam.GROUP_BYTES", 1)
    np.testing.assert_allclose(fitted("fecam", data, draw=None).scores(data.queries), expected, rtol=1e-8)


def test_fecam_with_one_shot_borrows_all_its_covariance():
    data = toy()
    one = type(data)(data.base, tuple(Support(s.features[:, :, :1]) for s in data.sessions), data.queries)
    assert fitted("fecam", one).scores(data.queries).isfinite().all()


def test_fecam_with_teen_moves_the_means_alone():
    data = toy()
    plain, composed = (fitted(name, data) for name in ("fecam", "fecam+teen"))
    teen = configure("teen", "cub200").method
    for before, after in zip(plain.new, composed.new, strict=True):
        torch.testing.assert_close(after, teen.calibrate(before, plain.base))
    torch.testing.assert_close(plain.shares, composed.shares)


def test_ranpac_on_shots_is_ridge_regression():
    data = toy()
    method = fitted("ranpac", data, variant="shots", width=25)
    features = np.concatenate([*classes_of(data), *shots_of(data)])
    counts = [len(x) for x in (*classes_of(data), *shots_of(data))]
    wanted = np.eye(len(counts))[np.repeat(np.arange(len(counts)), counts)]
    hidden = np.maximum(features @ method.projection.numpy(), 0)
    reference = Ridge(alpha=method.ridge, fit_intercept=False, solver="cholesky").fit(hidden, wanted)
    expected = reference.predict(np.maximum(data.queries.numpy() @ method.projection.numpy(), 0))
    np.testing.assert_allclose(method.scores(data.queries), expected, rtol=1e-5, atol=1e-7)


def test_ranpac_chooses_the_ridge_that_answers_held_out_images_best():
    from fscil_bench_methods.ranpac import RIDGES, _best_ridge, _statistics

    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    x = rng.normal(size=(60, 10)) + np.eye(3, 10)[labels]
    gram, sums = _statistics(torch.from_numpy(x[:40]), torch.from_numpy(labels[:40]), 3)
    wanted = np.eye(3)[labels]
    errors = []
    for ridge in RIDGES:
        predicted = Ridge(alpha=ridge, fit_intercept=False).fit(x[:40], wanted[:40]).predict(x[40:])
        errors.append(((predicted - wanted[40:]) ** 2).mean())
    best = _best_ridge(gram, sums, torch.from_numpy(x[40:]), torch.from_numpy(labels[40:]))
    assert best == RIDGES[int(np.argmin(errors))]


def test_ranpacs_samples_have_the_calibrated_mean_and_covariance():
    data = toy()
    method = fitted("ranpac", data, width=5, samples=20_000)
    drawn = method._calibrated(data.sessions[0].features[0]).numpy()
    base_means = np.stack([x.mean(axis=0) for x in classes_of(data)])
    for got, shots in zip(drawn, data.sessions[0].features[0].numpy(), strict=True):
        similarity = 16 * unit(base_means) @ unit(shots.mean(axis=0))
        weights = np.exp(similarity) / np.exp(similarity).sum()
        mixture = sum(w * np.cov(x.T) for w, x in zip(weights, classes_of(data), strict=True))
        np.testing.assert_allclose(got.mean(axis=0), 0.9 * shots.mean(axis=0) + 0.1 * weights @ base_means, atol=0.01)
        np.testing.assert_allclose(np.cov(got.T), mixture / 2 + np.cov(shots.T) / 2, atol=0.01)


@pytest.mark.parametrize(("dataset", "own"), [("cifar100", 0.75), ("cub200", 0.9)])
def test_ranpacs_weight_of_the_own_mean_is_the_codes(dataset, own):
    configured = configure("ranpac", dataset)
    assert configured.settings["own"] == own
    assert configured.origins["own"] == "code"
