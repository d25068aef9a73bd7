"""LDA, FeCAM and RanPAC against slow implementations with whole matrices, and against scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from fscil_bench.errors import FscilError
from fscil_bench.method import Base, Support
from fscil_bench.registry import configure
from fscil_bench.testing import BASE_CLASSES, DIM, QUERIES, toy

FLOAT32 = 1e-6  # relative: FeCAM whitens queries in float32


def fitted(name, data, draw=0, **values):
    method = configure(name, "cub200", {key: str(value) for key, value in values.items()}).method
    method.generator = torch.Generator().manual_seed(0)
    method.fit_base(data.base)
    for support in data.sessions:
        method.add_session(Support(support.features if draw is None else support.features[draw]))
    return method


def scored(method, queries):
    return method.scores(method.encode(queries))


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


def slow_fecam(data, shrinkage=10.0, tau=16.0, draw=0, own=0.9):
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
        mixture = sum(w * m for w, m in zip(weights, unit(base_means), strict=True))
        means.append(own * unit(x.mean(axis=0)) + (1 - own) * unit(mixture))
    scores = np.empty((len(data.queries), len(means)))
    for c, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        d = len(mean)
        for _ in range(2):
            on = np.mean(np.diag(covariance))
            off = covariance[~np.eye(d, dtype=bool)].mean()
            covariance = covariance + shrinkage * (on * np.eye(d) + off * (1 - np.eye(d)))  # noqa: PLW2901
        deviation = np.sqrt(np.diag(covariance))
        inverse = np.linalg.inv(covariance / np.outer(deviation, deviation) + 1e-6 * np.eye(d))
        for i, query in enumerate(data.queries.numpy()):
            away = unit(np.sqrt(query)) - unit(np.sqrt(mean))
            scores[i, c] = -away @ inverse @ away
    return scores


@pytest.mark.parametrize("shrinkage", [0.1, 1.0, 10.0, 100.0])
def test_fecam_is_the_mahalanobis_distance_with_mixed_correlations(shrinkage):
    data = toy()
    got = scored(fitted("fecam", data, shrinkage=shrinkage), data.queries)
    np.testing.assert_allclose(got, slow_fecam(data, shrinkage), rtol=FLOAT32)


@pytest.mark.parametrize("held", [1, 20_000])
def test_fecam_takes_draws_together_and_in_parts(monkeypatch, held):
    data = toy()
    monkeypatch.setattr("fscil_bench_methods.fecam.GROUP_BYTES", held)
    expected = np.stack([slow_fecam(data, draw=i) for i in range(3)])
    np.testing.assert_allclose(scored(fitted("fecam", data, draw=None), data.queries), expected, rtol=FLOAT32)


def test_fecams_distances_to_base_classes_are_made_once():
    """`scores` takes them from the encoded queries: what the runner hands it again in every session."""
    data = toy()
    method = fitted("fecam", data)
    rows = method.encode(data.queries)
    assert rows.shape == (QUERIES, DIM + BASE_CLASSES)
    np.testing.assert_allclose(-rows[:, DIM:], slow_fecam(data)[:, :BASE_CLASSES], rtol=FLOAT32)
    rows[:, DIM:] = torch.arange(BASE_CLASSES)
    np.testing.assert_array_equal(method.scores(rows)[:, :BASE_CLASSES], -rows[:, DIM:])


def test_fecam_in_episodes_has_donors_but_no_base_classes():
    data = toy()
    sessions, queries = data.sessions[:1], data.sessions[1].features.flatten(1, 2)
    method = fitted("fecam", replace(data, base=replace(data.base, donors_only=True), sessions=sessions), draw=None)
    got = scored(method, queries)
    for episode, of in enumerate(queries):
        slow = slow_fecam(replace(data, sessions=sessions, queries=of), draw=episode)
        np.testing.assert_allclose(got[episode], slow[:, BASE_CLASSES:], rtol=FLOAT32)


def test_fecam_with_one_shot_borrows_all_its_covariance():
    data = toy()
    one = replace(data, sessions=tuple(Support(s.features[:, :, :1]) for s in data.sessions))
    twice = replace(data, sessions=tuple(Support(s.features[:, :, [0, 0]]) for s in data.sessions))  # no spread either
    np.testing.assert_allclose(scored(fitted("fecam", one), data.queries), slow_fecam(twice), rtol=FLOAT32)


@pytest.mark.parametrize("own", [0.0, 0.75, 1.0])
def test_fecams_means_mix_in_base_means(own):
    data = toy()
    got = scored(fitted("fecam", data, own=own), data.queries)
    np.testing.assert_allclose(got, slow_fecam(data, own=own), rtol=FLOAT32)


def test_fecam_keeps_covariances_and_no_shots():
    """Of a covariance any root tells as much as any other: the one that is kept has no image's row in it."""
    data = toy()
    method = fitted("fecam", data)
    for kept, support in zip(method.spreads, data.sessions, strict=True):
        assert torch.equal(kept, kept.triu())
        for root, shots in zip(kept, support.features[0], strict=True):
            np.testing.assert_allclose((root.mT @ root).numpy(), np.cov(np.sqrt(shots.numpy()).T), atol=1e-12)


def test_fecam_takes_features_that_sum_to_zero():
    data = toy()

    def centred(x):
        return x - x.mean(dim=-1, keepdim=True)

    sessions = tuple(Support(centred(s.features)) for s in data.sessions)
    data = replace(data, base=replace(data.base, features=centred(data.base.features)), sessions=sessions)
    assert scored(fitted("fecam", data, power=1), centred(data.queries)).isfinite().all()


def test_fecam_says_so_where_a_class_never_varies():
    data = toy()
    still = torch.where(data.base.labels[:, None] == 2, 1.0, data.base.features)
    with pytest.raises(FscilError, match="the features of a class never vary"):
        scored(fitted("fecam", replace(data, base=replace(data.base, features=still))), data.queries)


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
    np.testing.assert_allclose(scored(method, data.queries), expected, rtol=1e-5, atol=1e-7)


def test_ranpacs_ridge_is_the_best_on_a_fifth_of_the_base_images():
    data = replace(toy(), sessions=())
    method = fitted("ranpac", data, width=25)
    generator = torch.Generator().manual_seed(0)
    project = torch.randn(DIM, 25, generator=generator, dtype=torch.float64).numpy()
    order = torch.randperm(len(data.base.labels), generator=generator).numpy()
    hidden = np.maximum(data.base.features.numpy() @ project, 0)
    wanted = np.eye(BASE_CLASSES)[data.base.labels.numpy()]
    held_out, kept = order[: len(order) // 5], order[len(order) // 5 :]
    errors = {}
    for power in range(-8, 9):
        reference = Ridge(alpha=10.0**power, fit_intercept=False, solver="svd").fit(hidden[kept], wanted[kept])
        errors[10.0**power] = np.square(reference.predict(hidden[held_out]) - wanted[held_out]).mean()
    np.testing.assert_allclose(method.projection, project)
    assert method.ridge == min(errors, key=errors.get)
    assert len(set(errors.values())) > 1


def test_ranpac_is_ridge_regression_on_the_samples_it_draws():
    data = toy()
    method = fitted("ranpac", data, width=25, samples=11)
    again = fitted("ranpac", replace(data, sessions=()), width=25, samples=11)  # draws the same numbers
    drawn = [again._drawn(support.features[0]).double().numpy() for support in data.sessions]
    project = method.projection.numpy()
    hidden = [*(np.maximum(x @ project, 0) for x in classes_of(data)), *(x for part in drawn for x in part)]
    wanted = np.eye(len(hidden)).repeat([len(x) for x in hidden], axis=0)
    reference = Ridge(alpha=method.ridge, fit_intercept=False, solver="cholesky").fit(np.concatenate(hidden), wanted)
    expected = reference.predict(np.maximum(data.queries.numpy() @ project, 0))
    assert [len(x) for x in hidden[BASE_CLASSES:]] == [11] * 6
    np.testing.assert_allclose(scored(method, data.queries), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("draw", [0, None])
@pytest.mark.parametrize("variant", ["shots", "calibrated"])
def test_ranpac_in_episodes_is_ridge_regression_on_the_episode(variant, draw):
    data = toy()
    data = replace(data, base=replace(data.base, donors_only=True), sessions=data.sessions[:1])
    method = fitted("ranpac", data, draw, variant=variant, width=25, episode_samples=11)
    queries = data.queries if draw == 0 else data.queries.expand(3, -1, -1)
    got = scored(method, queries)
    assert method.episode.shape == (*got.shape[:-2], 3, 4 if variant == "shots" else 11, 25)
    episodes = method.episode.reshape(-1, *method.episode.shape[-3:])
    for scores, classes in zip(got.reshape(-1, QUERIES, 3), episodes, strict=True):
        wanted = np.eye(3).repeat(classes.shape[1], axis=0)
        reference = Ridge(alpha=method.ridge, fit_intercept=False).fit(classes.flatten(0, 1).numpy(), wanted)
        expected = reference.predict(method.encode(data.queries).numpy())
        np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-9)


def test_ranpac_on_shots_does_not_depend_on_the_order_of_shots_and_classes():
    data = toy()
    plain, shots, classes = (
        scored(fitted("ranpac", replace(data, sessions=sessions), variant="shots", width=25), data.queries)
        for sessions in (
            data.sessions,
            tuple(Support(s.features.flip(-2)) for s in data.sessions),
            tuple(Support(s.features.flip(-3)) for s in data.sessions),
        )
    )
    torch.testing.assert_close(shots, plain)
    torch.testing.assert_close(classes, plain[:, [*range(BASE_CLASSES), 9, 8, 7, 12, 11, 10]])


def test_ranpacs_base_statistics_come_in_parts(monkeypatch):
    data = replace(toy(), sessions=())
    whole = fitted("ranpac", data, width=25)
    monkeypatch.setattr("fscil_bench_methods.ranpac.ROWS", 10)
    parts = fitted("ranpac", data, width=25)
    assert whole.ridge == parts.ridge
    torch.testing.assert_close((parts.gram, parts.sums), (whole.gram, whole.sums))


@pytest.mark.parametrize("shots", [4, 1])
def test_ranpacs_samples_have_the_calibrated_mean_and_covariance(shots):
    data = toy()
    method = fitted("ranpac", replace(data, sessions=()), width=5, samples=40_000)
    support = data.sessions[0].features[0, :, :shots]
    means, away = (x.numpy() for x in method._calibrated(support))
    base_means = np.stack([x.mean(axis=0) for x in classes_of(data)])
    for mean, drawn, own in zip(means, away, support.numpy(), strict=True):
        similarity = 16 * unit(base_means) @ unit(own.mean(axis=0))
        weights = np.exp(similarity) / np.exp(similarity).sum()
        mixture = sum(w * np.cov(x.T) for w, x in zip(weights, classes_of(data), strict=True))
        np.testing.assert_allclose(mean, 0.9 * own.mean(axis=0) + 0.1 * weights @ base_means)
        np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.01)
        expected = mixture / 2 + (np.cov(own.T) / 2 if shots > 1 else 0)
        np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.01)


@pytest.mark.parametrize("samples", [1, 6, 7])
def test_ranpacs_samples_come_in_pairs_mirrored_at_the_mean(samples):
    data = toy()
    support = data.sessions[0].features[0]
    method, same = (fitted("ranpac", replace(data, sessions=()), width=9, samples=samples) for _ in range(2))
    means, away = (x.double() for x in same._calibrated(support))
    pairs = torch.cat([means[:, None] + away, means[:, None] - away], dim=1)[:, :samples]
    hidden = method._drawn(support)
    assert hidden.shape == (3, samples, 9)
    torch.testing.assert_close(hidden.double(), method.encode(pairs), rtol=1e-4, atol=1e-5)


def test_ranpac_draws_samples_where_a_dimension_never_varies():
    data = toy()
    still = data.base.features.clone()
    still[:, 3] = 1.0
    sessions = tuple(Support(s.features.index_fill(-1, torch.tensor([3]), 1.0)) for s in data.sessions)
    method = fitted("ranpac", replace(data, base=replace(data.base, features=still), sessions=sessions), width=25)
    assert scored(method, data.queries).isfinite().all()
    _, away = method._calibrated(sessions[0].features[0])
    assert away[..., 3].abs().max() < 1e-3 < away[..., 4].abs().max()


@pytest.mark.parametrize(("dataset", "own"), [("cifar100", 0.75), ("cub200", 0.9)])
def test_ranpacs_weight_of_the_own_mean_is_the_codes(dataset, own):
    configured = configure("ranpac", dataset)
    assert configured.settings["own"] == own
    assert configured.origins["own"] == "code"
