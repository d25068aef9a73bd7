"""Draws: pinned, nested, checked against labels."""

from dataclasses import replace

import numpy as np
import pytest

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocols import load_protocol
from fscil_bench.protocols.draws import Split, UnresolvedDrawError


@pytest.fixture
def split(toy_bank):
    return Split(load_protocol("cifar100"), toy_bank(train=500))


def chosen(split, draw, class_number):
    """Which of its class's sorted training images a draw took."""
    first = np.flatnonzero((split.targets == class_number) & ~split.bank.is_test)[0]
    return (draw.rows[class_number - 60] - first).tolist()


@pytest.mark.parametrize(
    ("seed", "class_number", "images"),
    [
        (0, 60, [447, 456, 80, 398, 59]),
        (1, 75, [275, 484, 216, 291, 96]),
        (99, 99, [154, 484, 200, 308, 119]),
    ],
)
def test_random_draws_are_pinned(split, seed, class_number, images):
    assert chosen(split, split.random_draw(seed), class_number) == images


def test_shots_nest(toy_bank):
    protocol, bank = load_protocol("cifar100"), toy_bank()
    five = Split(protocol, bank).random_draw(0)
    one = Split(replace(protocol, shot=1), bank).random_draw(0)
    np.testing.assert_array_equal(one.rows, five.rows[:, :1])


def test_draws_are_training_images_of_their_class(split):
    draw = split.random_draw(7)
    numbers = np.repeat(np.arange(60, 100), 5).reshape(40, 5)
    np.testing.assert_array_equal(split.targets[draw.rows], numbers)
    assert not split.bank.is_test[draw.rows].any()
    assert len(np.unique(draw.rows)) == draw.rows.size


def test_too_few_images_are_named(toy_bank):
    split = Split(load_protocol("cifar100"), toy_bank(train=4))
    with pytest.raises(UsageError, match="class plain has 4 training images, 5 are needed"):
        split.random_draw(0)


def test_a_class_without_test_images_is_named(toy_bank):
    bank = toy_bank()
    keep = ~((bank.labels == 3) & bank.is_test)
    ids = tuple(i for i, k in zip(bank.ids, keep, strict=True) if k)
    less = replace(bank, features=bank.features[keep], labels=bank.labels[keep], is_test=bank.is_test[keep], ids=ids)
    with pytest.raises(FscilError, match="class bear has no test images"):
        Split(load_protocol("cifar100"), less)


def test_the_standard_draw_resolves_by_id(toy_bank):
    protocol, bank = load_protocol("cub200"), toy_bank(dataset="cub200")
    wanted = tuple(tuple(f"train/{protocol.classes[c]}/{k:03d}.png" for k in (4, 2, 0, 1, 7)) for c in range(100, 200))
    draw = Split(replace(protocol, support=wanted), bank).standard_draw(lambda: None)
    assert [bank.ids[row] for row in draw.rows[0]] == list(wanted[0])


def test_the_standard_draw_resolves_by_official_index(toy_bank):
    protocol, bank = load_protocol("cifar100"), toy_bank()
    order = np.random.default_rng(0).permutation(800)
    listed = [bank.ids[row] for row in order]
    place = {image: i for i, image in enumerate(listed)}
    support = tuple(tuple(place[f"train/{protocol.classes[c]}/{k:03d}.png"] for k in range(5)) for c in range(60, 100))
    draw = Split(replace(protocol, support=support), bank).standard_draw(lambda: listed)
    assert bank.ids[draw.rows[0, 0]] == f"train/{protocol.classes[60]}/000.png"


def test_the_standard_draw_needs_the_archive_where_it_lists_indices(split):
    with pytest.raises(UnresolvedDrawError, match="official archive"):
        split.standard_draw(lambda: None)


def test_supports_are_checked_against_labels(toy_bank):
    protocol, bank = load_protocol("cub200"), toy_bank(dataset="cub200")
    wanted = [[f"train/{protocol.classes[c]}/{k:03d}.png" for k in range(5)] for c in range(100, 200)]
    wanted[2][0] = f"train/{protocol.classes[50]}/000.png"
    with pytest.raises(FscilError, match="no training image of it"):
        Split(replace(protocol, support=tuple(map(tuple, wanted))), bank).standard_draw(lambda: None)


def test_test_images_are_no_support(toy_bank):
    protocol, bank = load_protocol("cub200"), toy_bank(dataset="cub200")
    wanted = [[f"train/{protocol.classes[c]}/{k:03d}.png" for k in range(5)] for c in range(100, 200)]
    wanted[0][0] = f"test/{protocol.classes[100]}/000.png"
    with pytest.raises(FscilError, match="no training image of it"):
        Split(replace(protocol, support=tuple(map(tuple, wanted))), bank).standard_draw(lambda: None)


def test_class_order_is_the_protocols_not_the_banks(toy_bank):
    bank = toy_bank()
    shuffled = np.random.default_rng(1).permutation(100)
    protocol = replace(load_protocol("cifar100"), classes=tuple(bank.classes[i] for i in shuffled))
    split = Split(protocol, bank)
    assert [bank.classes[label] for label in bank.labels[split.base_rows[::8]]] == list(protocol.classes[:60])
    assert (np.diff(split.targets[split.test_rows]) >= 0).all()
