"""Feature extractors, by name, and the cosine head they are trained with.

A network is `upper` after `lower`, cut after its second stage, for trainings that mix feature maps there.
"""

import importlib
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil_bench.errors import UsageError, unknown_name

Module = TypeVar("Module", bound=nn.Module)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride != 1 or width_in != width
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


class CifarResNet(nn.Module):
    """He et al.'s ResNet for 32-pixel images: three stages of n basic blocks, widths 16, 32, 64; depth 6n + 2.

    Features are averaged over the last map after its ReLU, so they are never negative.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.dim = 64
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.stage1 = self._stage(16, 16, blocks, stride=1)
        self.stage2 = self._stage(16, 32, blocks, stride=2)
        self.stage3 = self._stage(32, 64, blocks, stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(width_in: int, width: int, blocks: int, stride: int) -> nn.Sequential:
        first = BasicBlock(width_in, width, stride)
        return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))

    def lower(self, x: Tensor) -> Tensor:
        maps: Tensor = self.stage2(self.stage1(self.stem(x)))
        return maps

    def upper(self, maps: Tensor) -> Tensor:
        last: Tensor = self.stage3(maps)
        return last.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.upper(self.lower(x))


class CosineClassifier(nn.Module):
    """A network under a cosine head: logits = scale * cos(f(x), w_c), one row w_c for every base class."""

    def __init__(self, network: nn.Module, dim: int, n_classes: int, scale: float) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Linear(dim, n_classes, bias=False)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.network(x), self.head.weight)

    def logits(self, features: Tensor, rows: Tensor) -> Tensor:
        """Scaled cosines of features with rows of a head, [n, C]."""
        with torch.autocast(features.device.type, enabled=False):  # half precision is too coarse for scaled cosines
            return self.scale * F.linear(F.normalize(features.float(), dim=-1), F.normalize(rows, dim=-1))


class ResNet18(nn.Module):
    """torchvision's ResNet-18 without its classifier: 7x7 stride-2 stem, max-pooling, 512 features, none negative."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import resnet18

        self.dim = 512
        self.body = resnet18(weights=None)
        self.body.fc = nn.Identity()

    def lower(self, x: Tensor) -> Tensor:
        body = self.body
        maps: Tensor = body.layer2(body.layer1(body.maxpool(body.relu(body.bn1(body.conv1(x))))))
        return maps

    def upper(self, maps: Tensor) -> Tensor:
        last: Tensor = self.body.layer4(self.body.layer3(maps))
        return last.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.upper(self.lower(x))


class TimmNetwork(nn.Module):
    """Any network of the library timm without its classifier: its pooled features."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.body = _timm().create_model(name, pretrained=False, num_classes=0)
        self.dim = int(getattr(self.body, "head_hidden_size", None) or self.body.num_features)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features

    def lower(self, x: Tensor) -> Tensor:
        """Of EfficientNets: up to maps of an eighth of the picture's size, as after stage 2 of a ResNet-18."""
        self._require_parts()
        maps: Tensor = self.body.blocks[:EIGHTH](self.body.bn1(self.body.conv_stem(x)))
        return maps

    def upper(self, maps: Tensor) -> Tensor:
        self._require_parts()
        last = self.body.bn2(self.body.conv_head(self.body.blocks[EIGHTH:](maps)))
        features: Tensor = self.body.forward_head(last)
        return features

    def _require_parts(self) -> None:
        if not all(hasattr(self.body, part) for part in ("conv_stem", "bn1", "blocks", "conv_head", "bn2")):
            raise UsageError(
                f"network {TIMM}{self.name} has no middle that is known here, which mixing feature maps needs: take an "
                "EfficientNet, or a network of fscil-bench"
            )


Network = CifarResNet | ResNet18 | TimmNetwork


def make_network(name: str) -> Network:
    """The network called `name`, freshly initialised."""
    require_network(name)
    return TimmNetwork(name.removeprefix(TIMM)) if name.startswith(TIMM) else NETWORKS[name]()


def require_network(name: str) -> None:
    """Fail if there is no network called `name`."""
    if name.startswith(TIMM):
        timm, wanted = _timm(), name.removeprefix(TIMM)
        if not timm.is_model(wanted):
            raise unknown_name("network", name, [TIMM + known for known in timm.list_models()])
    elif name not in NETWORKS:
        raise unknown_name("network", name, [*NETWORKS, f"{TIMM}NAME"])


def own_preprocessing(name: str) -> dict[str, Any]:
    """How a timm network wants its pictures, as values of a recipe; nothing for networks that take what they get."""
    if not name.startswith(TIMM):
        return {}
    require_network(name)
    config = _timm().data.resolve_data_config({}, model=make_network(name).body)
    size = int(config["input_size"][-1])
    resize = round(size / config["crop_pct"])
    return {
        "size": size,
        "resize": resize,
        "squash": config["crop_mode"] == "squash",
        "canvas": resize,
        "interpolation": "bicubic" if config["interpolation"] == "bicubic" else "bilinear",
        "mean": tuple(config["mean"]),
        "std": tuple(config["std"]),
    }


def _timm() -> ModuleType:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise UsageError(f"networks {TIMM}NAME need timm ({error}): pip install 'fscil-bench[timm]'") from error


TIMM = "timm:"
EIGHTH = 3  # stages of an EfficientNet after which maps have an eighth of the picture's size
NETWORKS: dict[str, Callable[[], Network]] = {
    **{f"resnet{depth}": partial(CifarResNet, depth) for depth in (8, 14, 20, 32, 44, 56)},
    "resnet18": ResNet18,
}


def seeded(build: Callable[[], Module], seed: int) -> Module:
    """What `build` makes with torch's random state set to `seed`; the state outside is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
