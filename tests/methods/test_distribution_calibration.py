"""dc-lr and its ablations against slow implementations of the paper's steps and scikit-learn's classifier."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fscil_bench.logistic import fit
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
def test_scores_are_scikit_learns_on_what_the_method_keeps(name, monkeypatch):
    monkeypatch.setattr("fscil_bench_methods.lr.fit", partial(fit, tol=1e-8))
    data = toy()
    made = walked(method(name, samples=12), data)
    reference = LogisticRegression(C=1.0, tol=1e-8, max_iter=20_000).fit(made.features.numpy(), made.labels.numpy())
    queries = data.queries if name == "lr" else data.queries.sqrt()
    expected = reference.decision_function(queries.numpy())
    got = made.scores(data.queries).numpy()
    np.testing.assert_allclose(centred(got), centred(expected), atol=1e-3)
    np.testing.assert_array_equal(got.argmax(axis=1), expected.argmax(axis=1))


def test_lr_in_an_episode_is_scikit_learns_on_the_shots():
    data = toy()
    data = replace(data, base=replace(data.base, donors_only=True))
    made = walked(method("tukey-lr"), data, sessions=1)
    shots = data.sessions[0].features[0].sqrt().flatten(0, 1).numpy()
    labels = np.repeat(np.arange(WAY), len(shots) // WAY)
    reference = LogisticRegression(tol=1e-8, max_iter=10_000).fit(shots, labels)
    expected = reference.decision_function(data.queries.sqrt().numpy())
    got = made.scores(data.queries).numpy()
    np.testing.assert_allclose(centred(got), centred(expected), atol=0.01)


def test_every_class_weighs_about_the_same_in_sessions():
    made = walked(method("lr", samples=20), toy())
    counts = np.bincount(made.labels.numpy())
    assert len(counts) == BASE_CLASSES + 2 * WAY
    assert set(counts) == {20}
    shots = toy().sessions[1].features[0, -1]
    assert torch.equal(made.features[-20:].unique(dim=0), shots.unique(dim=0))


def test_base_classes_are_samples_and_no_images():
    data = toy()
    made = method("lr", samples=20_000)
    made._learn = lambda new: setattr(made, "drawn", new)  # what would be fitted
    made.fit_base(data.base)
    of_class = data.base.features[data.base.labels == 2].numpy()
    np.testing.assert_allclose(made.drawn[2].mean(dim=0), of_class.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(np.cov(made.drawn[2].numpy().T), np.cov(of_class.T), atol=0.01)


def slow_calibration(image, base, k, alpha, everywhere):
    """The mean and covariance that one transformed support image gets, with whole matrices."""
    means = np.stack([x.mean(axis=0) for x in base])
    near = np.argsort([np.linalg.norm(m - image) for m in means])[:k]
    mean = np.concatenate([means[near], image[None]]).mean(axis=0)
    covariance = np.mean([np.cov(base[i].T) for i in near], axis=0)
    return mean, covariance + (alpha if everywhere else alpha * np.eye(len(mean)))


@pytest.mark.parametrize(("variant", "k", "alpha"), [("code", 2, 0.21), ("corrected", 2, 0.21), ("code", 3, 0.0)])
def test_samples_have_the_calibrated_mean_and_covariance(variant, k, alpha):
    data = toy()
    made = method("dc-lr", variant=variant, k=k, alpha=alpha, samples=100_000)
    made._learn = lambda new: None
    made.fit_base(data.base)
    shots = data.sessions[0].features[0].sqrt()  # [way, shot, d]
    drawn = made.represent(shots)
    features = data.base.features if variant == "code" else data.base.features.sqrt()
    base = [features[data.base.labels == c].numpy() for c in range(BASE_CLASSES)]
    shot = shots.shape[1]
    assert torch.equal(drawn[:, :shot], shots)  # the images themselves are fitted too
    of_image = drawn[1, shot:].unflatten(0, (shot, -1))[2].numpy()  # of the second class, the third image
    mean, covariance = slow_calibration(shots[1, 2].numpy(), base, k, alpha, variant == "code")
    np.testing.assert_allclose(of_image.mean(axis=0), mean, atol=0.015)
    np.testing.assert_allclose(np.cov(of_image.T), covariance, atol=0.015)


def test_in_an_episode_the_papers_number_of_samples_is_drawn():
    data = toy()
    data = replace(data, base=replace(data.base, donors_only=True))
    made = walked(method("dc-lr"), data, sessions=1)
    shot = data.sessions[0].features.shape[-2]
    assert np.bincount(made.labels.numpy()).tolist() == [shot + shot * round(750 / shot)] * WAY
    assert made.scores(data.queries).shape == (QUERIES, WAY)


def test_more_neighbours_than_base_classes_are_all_of_them():
    data = toy()
    assert walked(method("dc-lr", k=50, samples=8), data).scores(data.queries).isfinite().all()


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
