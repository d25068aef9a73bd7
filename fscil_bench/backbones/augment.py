"""Training augmentation as batched tensor operations on uint8 images [n, 3, h, w]: no loader, no loop over images.

An augmentation is named in a recipe as "kind" or "kind:argument". Its random numbers come from a `Dice`, which rolls
for the whole global batch on every process and hands out this process's share: what happens to an image does not
depend on how many processes share the work.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil_bench.backbones.autoaugment import autoaugment_cifar10
from fscil_bench.backbones.dice import Dice
from fscil_bench.errors import UsageError, unknown_name

Augmentation = Callable[[Tensor, Dice], Tensor]


def crop(images: Tensor, dice: Dice, padding: int) -> Tensor:
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


def flip(images: Tensor, dice: Dice) -> Tensor:
    """Mirror left to right with probability one half."""
    mirrored = (dice.uniform() < 0.5).to(images.device)
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


def cutout(images: Tensor, dice: Dice, size: int) -> Tensor:
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

    def __call__(self, images: Tensor, dice: Dice) -> Tensor:
        for step in self.steps:
            images = step(images, dice)
        return images


def make_pipeline(names: Sequence[str]) -> Pipeline:
    return Pipeline(tuple(_parse(name) for name in names))


def _parse(name: str) -> Augmentation:
    kind, _, argument = name.partition(":")
    if kind in _PLAIN and not argument:
        return _PLAIN[kind]
    if kind in _SIZED:
        if not re.fullmatch(r"\d+", argument):
            raise UsageError(f"augmentation '{name}': expected {kind}:PIXELS")
        return partial(_SIZED[kind], **{_SIZE_ARGUMENT[kind]: int(argument)})
    raise unknown_name("augmentation", name, [*_PLAIN, *(f"{k}:N" for k in _SIZED)])


_PLAIN: dict[str, Augmentation] = {"flip": flip, "autoaugment-cifar10": autoaugment_cifar10}
_SIZED: dict[str, Callable[..., Tensor]] = {"crop": crop, "cutout": cutout}
_SIZE_ARGUMENT = {"crop": "padding", "cutout": "size"}
