"""dc-lr and its ablations against slow implementations of the paper's steps and scikit-learn's classifier."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fscil_bench.method import Support
from fscil_bench.registry import configure
from fscil_bench.testing import BASE_CLASSES, QUERIES, WAY, toy


def method(name, **values):
    made = configure(name, "cub200", {key: str(value) for key, value in values.items()}).method
    made.generator = torch.Generator().manual_seed(0)
    return made


def walked(made, data, sessions=2):
    made.fit_base(data.base)
    for support in data.sessions[:sessions]:
        made.add_session(Support(support.features[0]))
    return made


def centred(scores):
    """A number added to all scores of a query changes nothing."""
    return scores - scores.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["lr", "tukey-lr", "dc-lr"])
def test_scores_are_scikit_learns_on_what_stands_for_the_classes(name):
    data = toy()
    made = walked(method(name, samples=12), data)
    features, labels = made.data()
    kept = features @ made.axes.turn.mT
    reference = LogisticRegression(C=1.0, tol=1e-8, max_iter=20_000).fit(kept.numpy(), labels.numpy())
    queries = data.queries if name == "lr" else data.queries.sqrt()
    expected = reference.decision_function(queries.numpy())
    got = made.scores(made.encode(data.queries)).numpy()
    np.testing.assert_allclose(centred(got), centred(expected), atol=1e-3)
    np.testing.assert_array_equal(got.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize(("name", "change"), [("lr", np.asarray), ("tukey-lr", np.sqrt)])
def test_in_an_episode_it_is_scikit_learns_on_the_shots(name, change):
    data = toy()
    data = replace(data, base=replace(data.base, donors_only=True))
    made = walked(method(name, episode_tol=1e-6), data, sessions=1)
    shots = change(data.sessions[0].features[0].flatten(0, 1).numpy())
    labels = np.repeat(np.arange(WAY), len(shots) // WAY)
    reference = LogisticRegression(tol=1e-8, max_iter=10_000).fit(shots, labels)
    expected = reference.decision_function(change(data.queries.numpy()))
    got = made.scores(made.encode(data.queries)).numpy()
    np.testing.assert_allclose(centred(got), centred(expected), atol=0.01)


def test_every_class_weighs_about_the_same_in_sessions():
    made = walked(method("lr", samples=20), toy())
    features, labels = made.data()
    counts = np.bincount(labels.numpy())
    assert len(counts) == BASE_CLASSES + 2 * WAY
    assert set(counts) == {20}
    shots = toy().sessions[1].features[0, -1]
    kept = features[-20:].reshape(len(shots), -1, shots.shape[1]) @ made.axes.turn.mT
    torch.testing.assert_close(kept, shots[:, None].expand_as(kept))


@pytest.mark.parametrize(("name", "change"), [("lr", np.asarray), ("tukey-lr", np.sqrt), ("dc-lr", np.sqrt)])
def test_base_classes_are_samples_and_no_images(name, change):
    data = toy()
    made = method(name, samples=20_000)
    made._fit = lambda: None
    made.fit_base(data.base)
    of_class = change(data.base.features[data.base.labels == 2].numpy())
    features, labels = made.data()
    drawn = (features[labels == 2] @ made.axes.turn.mT).numpy()
    assert np.bincount(labels).tolist() == [20_000] * BASE_CLASSES
    np.testing.assert_allclose(drawn.mean(axis=0), of_class.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(of_class.T), atol=0.01)


def slow_calibration(image, base, k, alpha, everywhere):
    """The mean and covariance that one transformed support image gets, with whole matrices."""
    means = np.stack([x.mean(axis=0) for x in base])
    near = np.argsort([np.linalg.norm(m - image) for m in means])[:k]
    mean = np.concatenate([means[near], image[None]]).mean(axis=0)
    covariance = np.mean([np.cov(base[i].T) for i in near], axis=0)
    return mean, covariance + (alpha if everywhere else alpha * np.eye(len(mean)))


@pytest.mark.parametrize(("variant", "k", "alpha"), [("code", 2, 0.21), ("corrected", 2, 0.21), ("code", 3, 0.0)])
@pytest.mark.parametrize("place", ["sessions", "episodes", "episodes without a stock"])
def test_samples_have_the_calibrated_mean_and_covariance(variant, k, alpha, place, monkeypatch):
    if place == "episodes without a stock":
        monkeypatch.setattr("fscil_bench_methods.dc_lr.STOCK_BYTES", 0)
    data = toy()
    data = replace(data, base=replace(data.base, donors_only=place != "sessions"))
    made = method("dc-lr", variant=variant, k=k, alpha=alpha, samples=100_000, episode_samples=100_000)
    made._fit = lambda: None
    made.fit_base(data.base)
    assert (made.stock is not None) == (place == "episodes")
    shots = data.sessions[0].features[:1].sqrt()  # [1, way, shot, d]
    turn = made.axes.turn
    drawn = (made.represent(made.remember(shots.to(turn.dtype) @ turn)) @ turn.mT).double()
    features = data.base.features if variant == "code" else data.base.features.sqrt()
    base = [features[data.base.labels == c].numpy() for c in range(BASE_CLASSES)]
    groups = drawn[0].unflatten(1, (shots.shape[-2], -1))  # of each image, itself first
    torch.testing.assert_close(groups[:, :, 0], shots[0], rtol=1e-5, atol=1e-5)
    of_image = groups[1, 2, 1:].numpy()  # of the second class, the third image
    mean, covariance = slow_calibration(shots[0, 1, 2].numpy(), base, k, alpha, variant == "code")
    np.testing.assert_allclose(of_image.mean(axis=0), mean, atol=0.015)
    np.testing.assert_allclose(np.cov(of_image.T), covariance, atol=0.015)


def test_in_an_episode_the_papers_number_of_samples_is_drawn():
    data = toy()
    data = replace(data, base=replace(data.base, donors_only=True))
    made = walked(method("dc-lr"), data, sessions=1)
    shot = data.sessions[0].features.shape[-2]
    assert np.bincount(made.data()[1].numpy()).tolist() == [shot + shot * round(750 / shot)] * WAY
    assert made.scores(made.encode(data.queries)).shape == (QUERIES, WAY)


def test_gaussians_are_kept_and_images_only_in_their_session():
    data = toy()
    made = walked(method("dc-lr", samples=12), data, sessions=1)
    shots = data.sessions[0].features[0].sqrt() @ made.axes.turn
    first = made.represent(made.kept[0]).unflatten(1, (4, -1))  # of each image, itself first
    torch.testing.assert_close(first[:, :, 0], shots)
    made.add_session(Support(data.sessions[1].features[0]))
    assert [session.images is None for session in made.kept] == [True, False]
    later = made.represent(made.kept[0]).unflatten(1, (4, -1))
    torch.testing.assert_close(later, first[:, :, 1:])  # the same random numbers in every fit
    other = made.represent(made.kept[1]).unflatten(1, (4, -1))[:, :, 1:]
    noise = [samples - session.means[:, :, None] for samples, session in zip((later, other), made.kept, strict=True)]
    assert not torch.allclose(*noise)  # others in other sessions
    assert np.bincount(made.data()[1].numpy()).tolist() == [12] * (BASE_CLASSES + WAY) + [16] * WAY


@pytest.mark.parametrize("name", ["lr", "tukey-lr", "dc-lr"])
def test_sessions_are_fitted_when_scores_are_asked_for(name):
    data = toy()
    at_once, step_by_step = (method(name, samples=12) for _ in range(2))
    at_once.fit_base(data.base)
    step_by_step.fit_base(data.base)
    rows = at_once.encode(data.queries)
    for support in data.sessions:
        at_once.add_session(Support(support.features[0]))
        step_by_step.add_session(Support(support.features[0]))
        step_by_step.scores(rows)
    assert len(at_once.classifier.intercept) == BASE_CLASSES
    torch.testing.assert_close(at_once.scores(rows), step_by_step.scores(rows), rtol=0, atol=1e-4)
    assert len(at_once.classifier.intercept) == BASE_CLASSES + 2 * WAY


def test_what_keeps_images_or_as_much_as_they_tell_says_so():
    for name in ("lr", "tukey-lr", "dc-lr"):
        kind = type(configure(name, "cub200").method)
        assert (kind.privileges, kind.exemplars) == (("exemplars",), 5)


def test_more_neighbours_than_base_classes_are_all_of_them():
    data = toy()
    made = walked(method("dc-lr", k=50, samples=8), data)
    assert made.scores(made.encode(data.queries)).isfinite().all()


def test_draws_have_their_own_random_numbers_and_repeat(cli, toy_backbone, read):
    place = toy_backbone()
    records = []
    for out in ("one", "two"):
        args = ("--method", "dc-lr", "--set", "samples=10", "--backbone", place, "--draws", 2, "--out", out)
        done = cli("run", "--dataset", "cifar100", *args, "--baseline", "protonet")
        assert done.code == 0, done.err
        records.append(read(next(Path(out).rglob("dc-lr*.fscil.json"))))
    assert records[0]["draws"] == records[1]["draws"]
    assert records[0]["method"]["sampled"] is True
    assert records[0]["cost"]["trained_parameters"] == 100 * 17
