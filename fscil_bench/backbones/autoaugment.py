"""AutoAugment's CIFAR-10 and ImageNet policies on a whole batch at once.

The table and the magnitudes are those of the port that the FSCIL code bases use: sub-policies are drawn uniformly,
rotation has no random sign, borders are filled with grey 128, shears are bicubic, translations and rotations take the
nearest pixel. torchvision's AutoAugment differs in the last three.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from fscil_bench.backbones.dice import Dice

GREY = 128

# Two (operation, probability, magnitude index) each.
CIFAR10 = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("autocontrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("color", 0.9, 9), ("equalize", 0.6, 6)),
    (("autocontrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, 1)),
)


# The port's ImageNet policy has 24 sub-policies, one fewer than the paper's 25.
IMAGENET = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 4), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 7)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 2)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 8), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("color", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 2)),
    (("equalize", 0.0, 7), ("equalize", 0.8, 8)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("color", 1.0, 2)),
    (("color", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 8)),
    (("shear_x", 0.6, 5), ("equalize", 1.0, 9)),
    (("color", 0.4, 0), ("equalize", 0.6, 3)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
)
Policy = tuple[tuple[tuple[str, float, int], tuple[str, float, int]], ...]


def autoaugment(images: Tensor, dice: Dice, policies: Policy) -> Tensor:
    """Draw a sub-policy for every image and apply its two operations, each with its own probability."""
    policy = dice.integers(len(policies))
    for slot in range(2):
        kinds, probabilities, magnitudes = _columns(policies, slot)
        active = dice.uniform() < probabilities[policy]
        sign = dice.signs()
        for number, (operation, scale) in enumerate(OPERATIONS.values()):
            chosen = torch.nonzero(active & (kinds[policy] == number)).flatten()
            if not len(chosen):
                continue
            amount = scale(magnitudes[policy[chosen]], sign[chosen])
            rows = chosen.to(images.device)
            images = images.index_copy(0, rows, operation(images[rows], amount.to(images.device)))
    return images


@cache
def _columns(policies: Policy, slot: int) -> tuple[Tensor, Tensor, Tensor]:
    """Operation number, probability and magnitude (0 to 1) of every sub-policy's operation `slot`."""
    numbers = {name: i for i, name in enumerate(OPERATIONS)}
    steps = [policy[slot] for policy in policies]
    return (
        torch.tensor([numbers[name] for name, _, _ in steps]),
        torch.tensor([probability for _, probability, _ in steps]),
        torch.tensor([index / 9 for _, _, index in steps]),
    )


def _affine(images: Tensor, matrix: Tensor, mode: str) -> Tensor:
    """Sample `images` at matrix @ (x, y, 1), in pixels from the image centre; grey outside."""
    height, width = images.shape[-2:]
    size = torch.tensor([width, height], device=images.device) / 2
    theta = matrix.clone()
    theta[:, :, :2] = theta[:, :, :2] * size / size[:, None]
    theta[:, :, 2] = theta[:, :, 2] / size
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    moved = F.grid_sample(images.float(), grid, mode=mode, padding_mode="border", align_corners=False)
    outside = (grid.abs() > 1).any(dim=-1)[:, None]
    return moved.masked_fill(outside, GREY).round().clamp(0, 255).to(torch.uint8)


def _matrix(amount: Tensor) -> Tensor:
    return torch.eye(2, 3, device=amount.device).repeat(len(amount), 1, 1)


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """x <- x + amount * y, measured from the top left corner."""
    matrix = _matrix(amount)
    matrix[:, 0, 1] = amount
    matrix[:, 0, 2] = amount * images.shape[-2] / 2
    return _affine(images, matrix, "bicubic")


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    return shear_x(images.transpose(-1, -2), amount).transpose(-1, -2)


def translate_x(images: Tensor, amount: Tensor) -> Tensor:
    """x <- x + amount * width."""
    matrix = _matrix(amount)
    matrix[:, 0, 2] = amount * images.shape[-1]
    return _affine(images, matrix, "nearest")


def translate_y(images: Tensor, amount: Tensor) -> Tensor:
    return translate_x(images.transpose(-1, -2), amount).transpose(-1, -2)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn counter-clockwise about the centre."""
    angle = degrees * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    matrix = _matrix(degrees)
    matrix[:, 0, 0], matrix[:, 0, 1] = cos, -sin
    matrix[:, 1, 0], matrix[:, 1, 1] = sin, cos
    return _affine(images, matrix, "nearest")


def _blend(plain: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """plain + factor * (image - plain): factor 1 keeps the image, 0 gives the plain one."""
    mixed = plain + factor[:, None, None, None] * (images - plain)
    return mixed.clamp(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    """Luma (ITU-R 601-2) as whole numbers, [n, 1, h, w]."""
    weights = torch.tensor([19595, 38470, 7471], device=images.device)
    return ((images.long() * weights[:, None, None]).sum(1, keepdim=True) + 0x8000) >> 16


def color(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(_grey(images).float(), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    mean = _grey(images).float().mean(dim=(1, 2, 3), keepdim=True)
    return _blend((mean + 0.5).floor(), images, factor)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(torch.zeros(1, device=images.device), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with a 3x3 smoothing (weights 1, centre 5) that leaves the border pixels as they are."""
    kernel = torch.ones(3, 1, 3, 3, device=images.device)
    kernel[:, :, 1, 1] = 5
    smooth = images.float()
    smooth[:, :, 1:-1, 1:-1] = (F.conv2d(images.float(), kernel / 13, groups=3) + 0.5).floor()
    return _blend(smooth, images, factor)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` bits."""
    dropped = (8 - bits).to(torch.uint8)[:, None, None, None]
    return (images >> dropped) << dropped


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert what is not below the threshold."""
    return torch.where(images < threshold[:, None, None, None], images, 255 - images)


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    return torch.as_tensor(tv.autocontrast(images))


def equalize(images: Tensor, _: Tensor) -> Tensor:
    return torch.as_tensor(tv.equalize(images))


def invert(images: Tensor, _: Tensor) -> Tensor:
    return 255 - images


# Operation and the amount it takes, from a magnitude in 0 .. 1 and a random sign.
Operation = Callable[[Tensor, Tensor], Tensor]
OPERATIONS: dict[str, tuple[Operation, Operation]] = {
    "shear_x": (shear_x, lambda m, sign: 0.3 * m * sign),
    "shear_y": (shear_y, lambda m, sign: 0.3 * m * sign),
    "translate_x": (translate_x, lambda m, sign: 150 / 331 * m * sign),
    "translate_y": (translate_y, lambda m, sign: 150 / 331 * m * sign),
    "rotate": (rotate, lambda m, sign: 30 * m),
    "color": (color, lambda m, sign: 1 + 0.9 * m * sign),
    "contrast": (contrast, lambda m, sign: 1 + 0.9 * m * sign),
    "brightness": (brightness, lambda m, sign: 1 + 0.9 * m * sign),
    "sharpness": (sharpness, lambda m, sign: 1 + 0.9 * m * sign),
    "posterize": (posterize, lambda m, sign: (8 - 4 * m).round()),
    "solarize": (solarize, lambda m, sign: 256 - 256 * m),
    "autocontrast": (autocontrast, lambda m, sign: m),
    "equalize": (equalize, lambda m, sign: m),
    "invert": (invert, lambda m, sign: m),
}
