"""Training augmentation as batched tensor operations on uint8 images [n, 3, h, w]: no loader, no loop over images.

An augmentation is named in a recipe as "kind" or "kind:argument". Its random numbers come from a `Dice`, which rolls
for the whole global batch on every process and hands out this process's share: what happens to an image does not
depend on how many processes share the work.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil_bench.backbones.autoaugment import CIFAR10, IMAGENET, autoaugment
from fscil_bench.backbones.dice import Dice
from fscil_bench.errors import UsageError, unknown_name

CROP_TRIES = 10


@dataclass(frozen=True)
class Frame:
    """What an augmentation may need to know besides the pixels."""

    size: int  # of the square that the network sees
    aspect: Tensor  # [n], width / height of the pictures before they were made square


Augmentation = Callable[[Tensor, Dice, Frame], Tensor]


def crop(images: Tensor, dice: Dice, _: Frame, padding: int) -> Tensor:
    """Pad with black on every side, then cut a window of the old size at a random place."""
    n, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    top, left = dice.integers(2 * padding + 1), dice.integers(2 * padding + 1)
    rows = (top[:, None] + torch.arange(height)).to(images.device)
    columns = (left[:, None] + torch.arange(width)).to(images.device)
    return padded[
        torch.arange(n, device=images.device)[:, None, None, None],
        torch.arange(channels, device=images.device)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def flip(images: Tensor, dice: Dice, _: Frame) -> Tensor:
    """Mirror left to right with probability one half."""
    mirrored = (dice.uniform() < 0.5).to(images.device)
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


def resized_crop(images: Tensor, dice: Dice, frame: Frame, percent: int = 8) -> Tensor:
    """A random window of `percent` to 100 % of the picture's area and 3:4 to 4:3 sides, scaled to the network's square.

    Windows are drawn as torchvision's RandomResizedCrop draws them, in the picture's own shape: up to ten tries, then
    the largest centred window that keeps to the sides. Where the square is much smaller than the canvas, the window is
    sampled twice as densely and averaged.
    """
    width, height = frame.aspect.sqrt().cpu(), frame.aspect.rsqrt().cpu()  # of a picture of area 1
    wide, high = width.clamp(max=height * 4 / 3), height.clamp(max=width * 4 / 3)  # the largest centred window
    found = torch.zeros(len(images), dtype=torch.bool)
    for _ in range(CROP_TRIES):
        area = percent / 100 + (1 - percent / 100) * dice.uniform()
        ratio = ((dice.uniform() * 2 - 1) * math.log(4 / 3)).exp()
        w, h = (area * ratio).sqrt(), (area / ratio).sqrt()
        fits = (w <= width) & (h <= height) & ~found
        wide, high = torch.where(fits, w, wide), torch.where(fits, h, high)
        found |= fits
    across, down = dice.uniform(), dice.uniform()
    left = torch.where(found, across, 0.5) * (width - wide) / width  # in widths of the square canvas
    top = torch.where(found, down, 0.5) * (height - high) / height
    theta = torch.zeros(len(images), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = wide / width, high / height
    theta[:, 0, 2] = 2 * left + theta[:, 0, 0] - 1
    theta[:, 1, 2] = 2 * top + theta[:, 1, 1] - 1
    dense = 2 if images.shape[-1] > 1.4 * frame.size else 1
    shape = [len(images), 3, dense * frame.size, dense * frame.size]
    grid = F.affine_grid(theta.to(images.device), shape, align_corners=False)
    cut = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return F.avg_pool2d(cut, dense).round().clamp(0, 255).to(torch.uint8)


def cutout(images: Tensor, dice: Dice, _: Frame, size: int) -> Tensor:
    """Blacken one square centred anywhere on the image; it is clipped at the borders."""
    height, width = images.shape[-2:]
    centre_y, centre_x = dice.integers(height), dice.integers(width)
    inside_y = _within(torch.arange(height), centre_y, size).to(images.device)
    inside_x = _within(torch.arange(width), centre_x, size).to(images.device)
    return images.masked_fill((inside_y[:, :, None] & inside_x[:, None, :])[:, None], 0)


def _within(positions: Tensor, centre: Tensor, size: int) -> Tensor:
    first = centre[:, None] - size // 2
    return (positions >= first) & (positions < first + size)


@dataclass(frozen=True)
class Pipeline:
    """The augmentations of a recipe, in order."""

    steps: tuple[Augmentation, ...]

    def __call__(self, images: Tensor, dice: Dice, frame: Frame) -> Tensor:
        for step in self.steps:
            images = step(images, dice, frame)
        return images


def make_pipeline(names: Sequence[str]) -> Pipeline:
    return Pipeline(tuple(_parse(name) for name in names))


def _parse(name: str) -> Augmentation:
    kind, _, argument = name.partition(":")
    if kind in _PLAIN and not argument:
        return _PLAIN[kind]
    if kind in _SIZED:
        if not re.fullmatch(r"\d+", argument):
            raise UsageError(f"augmentation '{name}': expected {kind}:{_SIZE_ARGUMENT[kind].upper()}, a whole number")
        return partial(_SIZED[kind], **{_SIZE_ARGUMENT[kind]: int(argument)})
    raise unknown_name("augmentation", name, [*_PLAIN, *(f"{k}:N" for k in _SIZED)])


_PLAIN: dict[str, Augmentation] = {
    "flip": flip,
    "resized-crop": resized_crop,
    "autoaugment-cifar10": lambda images, dice, _: autoaugment(images, dice, CIFAR10),
    "autoaugment-imagenet": lambda images, dice, _: autoaugment(images, dice, IMAGENET),
}
_SIZED: dict[str, Callable[..., Tensor]] = {"crop": crop, "cutout": cutout, "resized-crop": resized_crop}
_SIZE_ARGUMENT = {"crop": "padding", "cutout": "size", "resized-crop": "percent"}
