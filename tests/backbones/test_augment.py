"""Batched augmentation against the one-image definitions."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from fscil_bench.backbones import autoaugment
from fscil_bench.backbones.augment import Frame, crop, cutout, flip, make_pipeline, resized_crop
from fscil_bench.backbones.autoaugment import CIFAR10, IMAGENET, OPERATIONS
from fscil_bench.backbones.dice import Dice
from fscil_bench.errors import UsageError


@pytest.fixture
def images():
    """Smooth images, so that resampling differences stay small."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, size=(16, 8, 8, 3)).astype(np.uint8)
    large = np.stack([np.asarray(Image.fromarray(s).resize((32, 32), Image.Resampling.BICUBIC)) for s in small])
    return torch.from_numpy(large).permute(0, 3, 1, 2).contiguous()


FRAME = Frame(32, torch.ones(16))


def dice(n=16, seed=0):
    return Dice(torch.Generator().manual_seed(seed), n)


def each(images, function):
    """Apply a PIL function to every image."""
    done = [np.asarray(function(Image.fromarray(i.permute(1, 2, 0).numpy()))) for i in images]
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2)


def test_crop_cuts_a_window_of_the_padded_image(images):
    got = crop(images, dice(), FRAME, 4)
    same = dice()
    top, left = same.integers(9), same.integers(9)
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    for i in range(16):
        assert torch.equal(got[i], padded[i, :, top[i] : top[i] + 32, left[i] : left[i] + 32])


def test_flip_mirrors_about_half(images):
    got = flip(images, dice(), FRAME)
    mirrored = [torch.equal(g, i.flip(-1)) for g, i in zip(got, images, strict=True)]
    kept = [torch.equal(g, i) for g, i in zip(got, images, strict=True)]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True))
    assert 3 < sum(mirrored) < 13


def test_cutout_blackens_a_clipped_square():
    white = torch.full((200, 3, 32, 32), 255, dtype=torch.uint8)
    black = (cutout(white, dice(200), FRAME, 16) == 0).all(dim=1)
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


@pytest.mark.parametrize(("policies", "count"), [(CIFAR10, 25), (IMAGENET, 24)])
def test_every_operation_of_the_policies_exists(policies, count):
    assert {name for policy in policies for name, _, _ in policy} <= set(OPERATIONS)
    assert len(policies) == count


@pytest.mark.parametrize("policies", [CIFAR10, IMAGENET])
def test_autoaugment_equals_its_operations_one_image_at_a_time(images, policies):
    got = autoaugment.autoaugment(images, dice(seed=3), policies)
    same = dice(seed=3)
    policy = same.integers(len(policies))
    expected = images.clone()
    for slot in range(2):
        chance, sign = same.uniform(), same.signs()
        for i in range(16):
            name, probability, index = policies[policy[i]][slot]
            operation, amount = OPERATIONS[name]
            if chance[i] < probability:
                value = amount(torch.tensor([index / 9]), sign[i : i + 1])
                expected[i : i + 1] = operation(expected[i : i + 1], value)
    assert torch.equal(got, expected)


def windows(aspect, n=4000, canvas=64):
    """Where resized crops look: the canvas holds its own coordinates, so pixels tell the window's sides."""
    ramp = torch.linspace(0.5 / canvas, 1 - 0.5 / canvas, canvas) * 255
    x, y = ramp.expand(canvas, canvas), ramp[:, None].expand(canvas, canvas)
    picture = torch.stack((x, y, x)).round().to(torch.uint8).expand(n, -1, -1, -1)
    cut = resized_crop(picture, dice(n), Frame(canvas, torch.full((n,), aspect))).float() / 255
    width = (cut[:, 0, 32, -1] - cut[:, 0, 32, 0]) * canvas / (canvas - 1)
    height = (cut[:, 1, -1, 32] - cut[:, 1, 0, 32]) * canvas / (canvas - 1)
    return width, height, cut


@pytest.mark.parametrize("aspect", [1.0, 1.5, 0.6])
def test_resized_crops_are_torchvisions(aspect):
    from torchvision.transforms import RandomResizedCrop

    width, height, _ = windows(aspect)
    picture = torch.empty(3, 400, round(400 * aspect))
    torch.manual_seed(0)
    drawn = [RandomResizedCrop.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(4000)]
    theirs_w = torch.tensor([w / picture.shape[2] for _, _, _, w in drawn])
    theirs_h = torch.tensor([h / picture.shape[1] for _, _, h, _ in drawn])
    for ours, theirs in ((width, theirs_w), (height, theirs_h), (width * height, theirs_w * theirs_h)):
        assert ours.mean() == pytest.approx(float(theirs.mean()), abs=0.02)
        assert ours.std() == pytest.approx(float(theirs.std()), abs=0.02)


def test_resized_crops_lie_anywhere_and_inside():
    _, _, cut = windows(1.0)
    assert cut[:, 0, 32, 0].min() < 0.02
    assert cut[:, 0, 32, -1].max() > 0.98
    assert cut[:, 1, :, 32].mean() == pytest.approx(0.5, abs=0.02)


def test_a_small_square_averages_a_large_canvas():
    board = (torch.arange(64)[:, None] + torch.arange(64)) % 2 * 255
    picture = board.to(torch.uint8).expand(50, 3, -1, -1)
    cut = resized_crop(picture, dice(50), Frame(16, torch.ones(50)))
    assert cut.shape == (50, 3, 16, 16)
    assert (cut.float().mean() - 127.5).abs() < 10


PIPELINES = [("crop:4", "flip"), ("crop:4", "flip", "autoaugment-cifar10", "cutout:16"), ("resized-crop",)]


@pytest.mark.parametrize("names", PIPELINES)
def test_an_images_fate_does_not_depend_on_the_number_of_processes(images, names):
    pipeline = make_pipeline(names)
    whole = pipeline(images, dice(), FRAME)
    for rank in range(2):
        share = slice(rank, None, 2)
        part = pipeline(images[share], Dice(torch.Generator().manual_seed(0), 16, share), Frame(32, torch.ones(8)))
        assert torch.equal(part, whole[share])


@pytest.mark.parametrize("name", ["crop", "crop:x", "flip:2", "mixup", "cutout:"])
def test_unknown_augmentations_are_named(name):
    with pytest.raises(UsageError, match="augmentation"):
        make_pipeline([name])
