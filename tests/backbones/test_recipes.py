"""Recipes as published, and their learning rates."""

import math
from itertools import pairwise

import pytest

from fscil_bench.backbones.recipe_data import recipe_listing, recipe_names
from fscil_bench.backbones.recipes import load_recipe
from fscil_bench.errors import UsageError


def test_cec_as_published():
    recipe = load_recipe("cec", "cifar100")
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.scale) == (100, 128, 0.1, 16.0)
    assert (recipe.momentum, recipe.nesterov, recipe.weight_decay) == (0.9, True, 5e-4)
    rates = [recipe.lr_at(epoch, 0, 10) for epoch in (0, 59, 60, 69, 70, 99)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_teen_as_published():
    recipe = load_recipe("teen", "cifar100")
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.scale) == (600, 256, 0.1, 16.0)
    assert recipe.augment == ("crop:4", "flip", "autoaugment-cifar10", "cutout:16")
    assert recipe.lr_at(0, 5, 10) == pytest.approx(0.1)
    assert recipe.lr_at(300, 0, 10) == pytest.approx(0.05)
    assert recipe.lr_at(599, 9, 10) == pytest.approx(0.1 * (1 + math.cos(math.pi * 599 / 600)) / 2)


def test_one_cycle_rises_to_the_peak_and_falls_to_zero():
    recipe = load_recipe("short", "cifar100")
    steps = 20
    rates = [recipe.lr_at(e, s, steps) for e in range(recipe.epochs) for s in range(steps)]
    peak = round(recipe.warmup * len(rates)) - 1
    assert max(rates) == pytest.approx(recipe.lr)
    assert rates[peak] == pytest.approx(recipe.lr)
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert all(a < b for a, b in pairwise(rates[: peak + 1]))
    assert all(a > b for a, b in pairwise(rates[peak:]))


def test_images_grow_in_equal_parts():
    recipe = load_recipe("cec", "miniimagenet").with_changes({"growth": "48,64,84", "epochs": "9"})
    assert [recipe.size_at(epoch) for epoch in range(9)] == [48] * 3 + [64] * 3 + [84] * 3
    assert load_recipe("cec", "miniimagenet").size_at(50) == 84


def test_changes_are_typed():
    recipe = load_recipe("short", "cifar100").with_changes(
        {"epochs": "3", "augment": "flip,crop:2", "nesterov": "false"}
    )
    assert (recipe.epochs, recipe.augment, recipe.nesterov) == (3, ("flip", "crop:2"), False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": "many"}, "epochs=many is not a whole number"),
        ({"epochs": "0"}, "epochs must be at least 1"),
        ({"epoch": "3"}, "did you mean 'epochs'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"growth": "16,32"}, "growth needs resized-crop"),
        ({"momentum": "0"}, "nesterov=true needs momentum"),
        ({"warmup": "1"}, "warmup must be at least 0 and below 1"),
        ({"name": "x"}, "unknown setting"),
    ],
)
def test_wrong_changes_are_named(change, message):
    with pytest.raises(UsageError, match=message):
        load_recipe("short", "cifar100").with_changes(change)


def test_the_listing_says_which_recipes_not_every_dataset_has():
    assert recipe_listing() == "cec, teen, short, frozen (cub200 only), fact, fact-short"


def test_unknown_recipes_are_named():
    assert recipe_names("cifar100") == ["cec", "teen", "short", "fact", "fact-short"]
    with pytest.raises(UsageError, match="did you mean 'teen'"):
        load_recipe("ten", "cifar100")
