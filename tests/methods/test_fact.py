"""FACT's inference against a slow, literal transcription, and TEEN on top of it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fscil_bench.method import Support
from fscil_bench.registry import configure
from fscil_bench.testing import BASE_CLASSES, toy


def fitted(name="fact", sessions=2, **settings):
    data = toy()
    method = configure(name, "cub200", {key: str(value) for key, value in settings.items()}).method
    method.fit_base(data.base)
    for support in data.sessions[:sessions]:
        method.add_session(Support(support.features[0]))
    return data, method


def unit(x):
    return x / np.linalg.norm(x)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def slow(data, rows, top, per_class, eta=0.1, scale=16.0):
    """score = eta softmax(s A) + (1 - eta) softmax(T cos), one query and one class at a time."""
    virtual = np.stack([unit(v) for v in data.base.head["virtual"].numpy()])
    normalised = np.stack([unit(w) for w in rows]) if per_class else np.stack([unit(x) for x in rows.T]).T
    scores = []
    for f in data.queries.numpy():
        s = virtual @ unit(f)
        s[np.argsort(s)[: len(s) - top]] = 0
        first = np.array([sum(s[v] * (virtual[v] @ row) for v in range(len(virtual))) for row in normalised])
        second = np.array([scale * unit(f) @ unit(w) for w in rows])
        scores.append(eta * softmax(first) + (1 - eta) * softmax(second))
    return np.stack(scores)


@pytest.mark.parametrize("variant", ["code", "classes"])
@pytest.mark.parametrize("top", [2, 6, 40])
def test_scores_are_those_of_the_maths(variant, top):
    data, method = fitted(variant=variant, top=top)
    means = [data.base.means(), *(support.features[0].mean(dim=-2) for support in data.sessions)]
    wanted = slow(data, torch.cat(means).numpy(), min(top, 6), variant == "classes")
    np.testing.assert_allclose(method.scores(data.queries).numpy(), wanted, rtol=1e-10)


def test_session_0_has_cosines_alone():
    data, method = fitted(sessions=0)
    plain = configure("protonet", "cub200").method
    plain.fit_base(data.base)
    torch.testing.assert_close(method.scores(data.queries), plain.scores(data.queries))


def test_teen_on_top_calibrates_new_classes_and_keeps_their_length():
    data, method = fitted("fact+teen")
    teen = configure("teen", "cub200").method
    rows = [data.base.means()]
    for support in data.sessions:
        means = support.features[0].mean(dim=-2)
        better = teen.calibrate(means, data.base.means())
        rows.append(better / better.norm(dim=-1, keepdim=True) * means.norm(dim=-1, keepdim=True))
    wanted = slow(data, torch.cat(rows).numpy(), 6, per_class=False)
    np.testing.assert_allclose(method.scores(data.queries).numpy(), wanted, rtol=1e-10)


def test_without_the_virtual_view_it_ranks_as_protonet():
    data, method = fitted(eta=0)
    plain = configure("protonet", "cub200").method
    plain.fit_base(data.base)
    for support in data.sessions:
        plain.add_session(Support(support.features[0]))
    assert torch.equal(method.scores(data.queries).argmax(-1), plain.scores(data.queries).argmax(-1))


def test_a_backbone_of_another_objective_is_refused(cli, toy_backbone):
    on = ("--dataset", "cifar100", "--backbone", str(toy_backbone()))
    for call in (
        ("run", "--method", "fact"),
        ("run", "--method", "protonet", "--baseline", "fact"),
        ("fsl", "--method", "protonet", "--baseline", "fact"),
        ("compare", "fact"),
        ("compare", "protonet", "--baseline", "fact"),
        ("analyze", "offset", "fact"),
    ):
        done = cli(*call, *on)
        assert done.code == 2, call
        assert "needs a backbone trained for the objective fact" in done.error_line
    assert not list(Path("runs").rglob("*.json"))  # refused before any work


def test_base_classes_are_no_answers_in_episodes():
    data = toy()
    from dataclasses import replace

    method = configure("fact", "cub200").method
    method.fit_base(replace(data.base, donors_only=True))
    method.add_session(Support(data.sessions[0].features))
    scores = method.scores(data.sessions[1].features.flatten(1, 2))
    assert scores.shape[-1] == 3 < BASE_CLASSES
    torch.testing.assert_close(scores.sum(dim=-1), torch.ones(scores.shape[:-1], dtype=torch.float64))
