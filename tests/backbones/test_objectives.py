"""FACT's losses against a literal transcription of the maths, and what its training leaves alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fscil_bench.backbones.machine import Machine
from fscil_bench.backbones.objectives import Mixing, build_objective
from fscil_bench.backbones.recipe_data import recipe_names
from fscil_bench.backbones.recipes import load_recipe
from fscil_bench.backbones.training import Images, Plan, train
from fscil_bench.errors import UsageError

SMALL = {"network": "resnet8", "epochs": 3, "batch_size": 16, "lr": 0.05, "balance": 0.5}
RECIPE = replace(load_recipe("fact-short", "cifar100"), **SMALL)
PLAIN = replace(load_recipe("short", "cifar100"), **{k: v for k, v in SMALL.items() if k != "balance"})
CPU = Machine(device="cpu", threads=1)
BASE, VIRTUAL = 4, 5


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(10, 3, 16, 16, generator=generator), torch.arange(10) % BASE


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(BASE).repeat_interleave(12)
    pixels = torch.randint(0, 256, (len(labels), 3, 16, 16), generator=generator, dtype=torch.uint8)
    return Images(pixels, labels, torch.ones(len(labels)))


def plan(**changes):
    return Plan(**{"recipe": RECIPE, "n_classes": BASE, "n_virtual": VIRTUAL, **changes})


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


def log_loss(logits, target):
    top = max(logits)
    return top + np.log(sum(np.exp(z - top) for z in logits)) - logits[target]


def slow_losses(objective, inputs, labels, mixing):
    """One image at a time, as the maths is written."""
    c = objective.classifier
    head, reserved, a = c.head.weight.detach(), c.reserved, c.assigned
    maps = c.network.lower(inputs).detach()
    features = c.network.upper(maps).detach()
    first, second = [], []
    for f, y in zip(features, labels.tolist(), strict=True):
        z = [c.scale * cosine(f, w) for w in (*head[:BASE], *reserved)]
        first.append(log_loss(z[:BASE], y))
        z[y] = -1e9
        wins = [z[BASE + v] * float(a[y, v]) for v in range(VIRTUAL)]
        second.append(log_loss(z, BASE + int(np.argmax(wins))))
    partners = mixing.partners
    kept = [i for i in range(len(labels)) if labels[i] != labels[partners[i]]]
    mixed = torch.stack([mixing.weight * maps[i] + (1 - mixing.weight) * maps[partners[i]] for i in kept])
    third, fourth = [], []
    for f in c.network.upper(mixed).detach():
        u = [c.scale * cosine(f, w) for w in head]
        best_virtual, best_base = BASE + int(np.argmax(u[BASE:])), int(np.argmax(u[:BASE]))
        third.append(log_loss(u, best_virtual))
        u[best_virtual] = -1e9
        fourth.append(log_loss(u, best_base))
    return np.mean(first), np.mean(second), np.mean(third), np.mean(fourth)


def test_the_losses_are_those_of_the_maths(batch):
    inputs, labels = batch
    objective = build_objective(RECIPE, BASE, VIRTUAL, seed=3).eval()  # eval: batch norm as the slow loop has it
    mixing = Mixing.drawn(np.random.default_rng(5), 0.5, len(labels), slice(None))
    got = objective(inputs, labels, mixing)
    first, second, third, fourth = slow_losses(objective, inputs, labels, mixing)
    assert float(got.cross_entropy) / len(labels) == pytest.approx(first, rel=1e-4)
    wanted = first + RECIPE.balance * (second + third + fourth)
    assert float(got.total.detach()) / len(labels) == pytest.approx(wanted, rel=1e-4)


def test_without_mixing_it_is_cross_entropy(batch):
    got = build_objective(RECIPE, BASE, VIRTUAL, seed=3)(*batch)
    assert float(got.total.detach()) == float(got.cross_entropy)


def test_every_virtual_class_is_assigned_to_three_base_classes():
    classifier = build_objective(RECIPE, BASE, VIRTUAL, seed=3).classifier
    assert classifier.assigned.sum(dim=0).tolist() == [3.0] * VIRTUAL
    rows = classifier.head.weight.detach()
    torch.testing.assert_close(rows @ rows.T, torch.eye(BASE + VIRTUAL))  # orthonormal where there is room


def test_trainings_of_one_seed_start_from_the_same_network():
    fact, plain = build_objective(RECIPE, BASE, VIRTUAL, seed=3), build_objective(PLAIN, BASE, 0, seed=3)
    for one, other in zip(fact.classifier.network.parameters(), plain.classifier.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_both_objectives_see_the_same_images(images, tmp_path, monkeypatch):
    from fscil_bench.backbones import objectives

    seen = {"fact": [], "plain": []}
    for name, kind, chosen in (
        ("fact", objectives.Fact, plan()),
        ("plain", objectives.CrossEntropy, plan(recipe=PLAIN, n_virtual=0)),
    ):
        real = kind.forward

        def spy(self, inputs, labels, mixing=None, real=real, name=name):
            seen[name].append(inputs.clone())
            return real(self, inputs, labels, mixing)

        monkeypatch.setattr(kind, "forward", spy)
        train(chosen, images, None, CPU, tmp_path / name)
    assert len(seen["fact"]) == len(seen["plain"]) == 9
    assert all(torch.equal(*pair) for pair in zip(seen["fact"], seen["plain"], strict=True))


def test_the_reserved_rows_do_not_move_in_training(images, tmp_path):
    start = build_objective(RECIPE, BASE, VIRTUAL, seed=1).classifier
    trained = train(plan(), images, None, CPU, tmp_path).weights
    assert torch.equal(trained["reserved"], start.reserved)
    assert torch.equal(trained["assigned"], start.assigned)
    assert not torch.allclose(trained["head.weight"][BASE:], start.reserved, atol=1e-3)  # the trained ones do


def test_it_resumes_with_the_same_weights(images, tmp_path, monkeypatch):
    from fscil_bench.backbones import training

    straight = train(plan(), images, None, CPU, tmp_path / "straight").weights
    real, calls = training._train_epoch, []

    def dies_in_the_third(*args):
        calls.append(args)
        if len(calls) == 3:
            raise RuntimeError("power cut")
        return real(*args)

    monkeypatch.setattr(training, "_train_epoch", dies_in_the_third)
    with pytest.raises(RuntimeError, match="power cut"):
        train(plan(), images, None, CPU, tmp_path / "cut")
    resumed = train(plan(), images, None, CPU, tmp_path / "cut").weights
    assert all(torch.equal(resumed[key], value) for key, value in straight.items())


def test_two_processes_train_it_too(images, tmp_path):
    trained = train(plan(recipe=replace(RECIPE, epochs=1)), images, None, replace(CPU, devices=2), tmp_path)
    assert trained.curve[0]["loss"] > trained.curve[0]["cross_entropy"] > 0


def test_it_trains_in_mixed_precision(images, tmp_path):
    trained = train(plan(), images, None, replace(CPU, precision="bf16-mixed"), tmp_path)
    assert np.isfinite(trained.curve[-1]["loss"])


def test_its_losses_may_begin_later(images, tmp_path):
    trained = train(plan(recipe=replace(RECIPE, mix_from=2)), images, None, CPU, tmp_path)
    gaps = [row["loss"] - row["cross_entropy"] for row in trained.curve]
    assert gaps[0] == gaps[1] == 0
    assert gaps[2] > 0


def test_a_partner_is_any_image_of_the_share():
    mixing = Mixing.drawn(np.random.default_rng(0), 2.0, 11, slice(1, None, 2))
    assert sorted(mixing.partners.tolist()) == [0, 1, 2, 3, 4]
    assert 0 <= mixing.weight <= 1
    other = Mixing.drawn(np.random.default_rng(0), 2.0, 11, slice(0, None, 2))
    assert other.weight == mixing.weight  # one weight for the whole batch


@pytest.mark.parametrize("dataset", ["cifar100", "miniimagenet", "cub200"])
def test_short_recipes_differ_in_the_objective_alone(dataset):
    assert {"fact", "fact-short"} <= set(recipe_names(dataset))
    fact, plain = load_recipe("fact-short", dataset).as_data(), load_recipe("short", dataset).as_data()
    only = {"name", "source", "objective", "balance", "mix_from", "mix_alpha"}
    assert {key: value for key, value in fact.items() if key not in only} == {
        key: value for key, value in plain.items() if key not in only
    }


def test_networks_without_a_known_middle_are_refused():
    recipe = replace(RECIPE, network="timm:vit_tiny_patch16_224")
    with pytest.raises(UsageError, match="no middle that is known"):
        build_objective(recipe, BASE, VIRTUAL, seed=1)(torch.zeros(2, 3, 224, 224), torch.zeros(2, dtype=torch.int64))


def test_an_unknown_objective_is_named():
    with pytest.raises(UsageError, match="objective"):
        replace(RECIPE, objective="facts")
