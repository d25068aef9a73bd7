"""Batched augmentation against the one-image definitions."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from fscil_bench.backbones import autoaugment
from fscil_bench.backbones.augment import crop, cutout, flip, make_pipeline
from fscil_bench.backbones.autoaugment import CIFAR10, OPERATIONS, autoaugment_cifar10
from fscil_bench.backbones.dice import Dice
from fscil_bench.errors import UsageError


@pytest.fixture
def images():
    """Smooth images, so that resampling differences stay small."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, size=(16, 8, 8, 3)).astype(np.uint8)
    large = np.stack([np.asarray(Image.fromarray(s).resize((32, 32), Image.Resampling.BICUBIC)) for s in small])
    return torch.from_numpy(large).permute(0, 3, 1, 2).contiguous()


def dice(n=16, seed=0):
    return Dice(torch.Generator().manual_seed(seed), n)


def each(images, function):
    """Apply a PIL function to every image."""
    done = [np.asarray(function(Image.fromarray(i.permute(1, 2, 0).numpy()))) for i in images]
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2)


def test_crop_cuts_a_window_of_the_padded_image(images):
    got = crop(images, dice(), 4)
    same = dice()
    top, left = same.integers(9), same.integers(9)
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    for i in range(16):
        assert torch.equal(got[i], padded[i, :, top[i] : top[i] + 32, left[i] : left[i] + 32])


def test_flip_mirrors_about_half(images):
    got = flip(images, dice())
    mirrored = [torch.equal(g, i.flip(-1)) for g, i in zip(got, images, strict=True)]
    kept = [torch.equal(g, i) for g, i in zip(got, images, strict=True)]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True))
    assert 3 < sum(mirrored) < 13


def test_cutout_blackens_a_clipped_square():
    white = torch.full((200, 3, 32, 32), 255, dtype=torch.uint8)
    black = (cutout(white, dice(200), 16) == 0).all(dim=1)
    area = black.sum(dim=(1, 2))
    assert area.max() == 256
    assert area.min() >= 64  # centred on a corner a quarter remains
    same = dice(200)
    y, x = same.integers(32), same.integers(32)
    assert black[torch.arange(200), y, x].all()


EXACT = {
    "posterize": (torch.tensor([6.0]), lambda i: ImageOps.posterize(i, 6)),
    "solarize": (torch.tensor([142.2]), lambda i: ImageOps.solarize(i, 142.2)),
    "autocontrast": (torch.tensor([0.0]), ImageOps.autocontrast),
    "equalize": (torch.tensor([0.0]), ImageOps.equalize),
    "invert": (torch.tensor([0.0]), ImageOps.invert),
}
WITHIN_ONE = {
    "color": (torch.tensor([1.6]), lambda i: ImageEnhance.Color(i).enhance(1.6)),
    "contrast": (torch.tensor([0.4]), lambda i: ImageEnhance.Contrast(i).enhance(0.4)),
    "brightness": (torch.tensor([1.3]), lambda i: ImageEnhance.Brightness(i).enhance(1.3)),
    "sharpness": (torch.tensor([1.9]), lambda i: ImageEnhance.Sharpness(i).enhance(1.9)),
}
GREY = (128, 128, 128)
MOVES = {
    "shear_x": (
        torch.tensor([0.2]),
        lambda i: i.transform(
            i.size, Image.Transform.AFFINE, (1, 0.2, 0, 0, 1, 0), Image.Resampling.BICUBIC, fillcolor=GREY
        ),
    ),
    "shear_y": (
        torch.tensor([-0.2]),
        lambda i: i.transform(
            i.size, Image.Transform.AFFINE, (1, 0, 0, -0.2, 1, 0), Image.Resampling.BICUBIC, fillcolor=GREY
        ),
    ),
    "translate_x": (
        torch.tensor([0.25]),
        lambda i: i.transform(i.size, Image.Transform.AFFINE, (1, 0, 0.25 * 32, 0, 1, 0), fillcolor=GREY),
    ),
    "translate_y": (
        torch.tensor([-0.25]),
        lambda i: i.transform(i.size, Image.Transform.AFFINE, (1, 0, 0, 0, 1, -0.25 * 32), fillcolor=GREY),
    ),
    "rotate": (torch.tensor([20.0]), lambda i: i.rotate(20, fillcolor=GREY)),
}


@pytest.mark.parametrize("name", EXACT)
def test_operations_equal_pillows(images, name):
    amount, reference = EXACT[name]
    got = getattr(autoaugment, name)(images, amount.expand(16))
    assert (got.int() - each(images, reference).int()).abs().max() <= (1 if name in ("autocontrast", "equalize") else 0)


@pytest.mark.parametrize("name", WITHIN_ONE)
def test_blends_equal_pillows_but_for_rounding(images, name):
    amount, reference = WITHIN_ONE[name]
    got = getattr(autoaugment, name)(images, amount.expand(16))
    assert (got.int() - each(images, reference).int()).abs().max() <= 1


@pytest.mark.parametrize("name", MOVES)
def test_moves_equal_pillows_inside(images, name):
    amount, reference = MOVES[name]
    got = getattr(autoaugment, name)(images, amount.expand(16)).int()
    wrong = (got - each(images, reference).int()).abs() > 4
    assert wrong.float().mean() < 0.03  # borders and half-way pixels


def test_every_operation_of_the_policy_exists():
    assert {name for policy in CIFAR10 for name, _, _ in policy} <= set(OPERATIONS)
    assert len(CIFAR10) == 25


def test_autoaugment_equals_its_operations_one_image_at_a_time(images):
    got = autoaugment_cifar10(images, dice(seed=3))
    same = dice(seed=3)
    policy = same.integers(25)
    expected = images.clone()
    for slot in range(2):
        chance, sign = same.uniform(), same.signs()
        for i in range(16):
            name, probability, index = CIFAR10[policy[i]][slot]
            operation, amount = OPERATIONS[name]
            if chance[i] < probability:
                value = amount(torch.tensor([index / 9]), sign[i : i + 1])
                expected[i : i + 1] = operation(expected[i : i + 1], value)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("names", [("crop:4", "flip"), ("crop:4", "flip", "autoaugment-cifar10", "cutout:16")])
def test_an_images_fate_does_not_depend_on_the_number_of_processes(images, names):
    pipeline = make_pipeline(names)
    whole = pipeline(images, dice())
    for rank in range(2):
        share = slice(rank, None, 2)
        part = pipeline(images[share], Dice(torch.Generator().manual_seed(0), 16, share))
        assert torch.equal(part, whole[share])


@pytest.mark.parametrize("name", ["crop", "crop:x", "flip:2", "mixup", "cutout:"])
def test_unknown_augmentations_are_named(name):
    with pytest.raises(UsageError, match="augmentation"):
        make_pipeline([name])
