"""Training recipes: named data from recipes.toml, with a learning rate for every step."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fscil_bench.backbones.networks import own_preprocessing
from fscil_bench.backbones.recipe_data import recipe_data, recipe_names
from fscil_bench.backbones.store import CROSS_ENTROPY
from fscil_bench.datasets.images import INTERPOLATION, View
from fscil_bench.errors import UsageError, unknown_name
from fscil_bench.protocols import load_protocol
from fscil_bench.settings import parse_settings

NO_WEIGHTS = "none"
FACT = "fact"  # an objective, as CROSS_ENTROPY
OF_FACT = ("balance", "mix_from", "mix_alpha")  # what only that objective knows


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a backbone is trained on the base classes: SGD on an objective over a cosine head."""

    name: str
    dataset: str  # the protocol whose base classes are trained on
    source: str
    network: str
    weights: str = (
        NO_WEIGHTS  # what the network starts from: "none", "imagenet" (its library's), or "sha256:..." of a file
    )
    pretraining: str = NO_WEIGHTS  # what those weights were trained on
    epochs: int  # 0: the network is taken as it is
    batch_size: int = 128  # over all processes together
    lr: float = 0.1
    head_rate: float = 1.0  # the head's learning rate, in multiples of `lr`
    schedule: str = "cosine"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    warmup: float = 0.0
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4  # on every parameter, norms and head included
    scale: float = 16.0  # multiplies the cosine; "temperature" in most code bases
    label_smoothing: float = 0.0
    objective: Literal["cross-entropy", "fact"] = "cross-entropy"
    balance: float = 0.01  # FACT: the weight of its losses beside cross-entropy
    mix_from: int = 0  # FACT: the epoch, counted from 0, from which its losses count
    mix_alpha: float = 2.0  # FACT: feature maps are mixed with weights from Beta(mix_alpha, mix_alpha)
    augment: tuple[str, ...] = ()
    size: int = 32  # of the square that the network sees
    growth: tuple[int, ...] = ()  # squares seen in training instead, one after another, for equally many epochs each
    resize: int | None = None  # of the shorter side before that square is cut out in tests; None: images are that size
    squash: bool = False  # scale both sides to `resize`
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    canvas: int | None = None  # of the square that training images are kept in for random crops; None: as in tests
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        least = {"epochs": 0 if self.weights != NO_WEIGHTS else 1, "batch_size": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise UsageError(f"recipe {self.name}: {name} must be at least {low}, not {getattr(self, name)}")
        if self.objective not in (CROSS_ENTROPY, FACT):
            raise unknown_name("objective", self.objective, (CROSS_ENTROPY, FACT))
        for name in ("lr", "head_rate", "scale", "balance", "mix_alpha"):
            if not getattr(self, name) > 0:
                raise UsageError(f"recipe {self.name}: {name} must be above 0")
        if len(self.mean) != 3 or len(self.std) != 3 or not min(self.std) > 0:
            raise UsageError(f"recipe {self.name}: mean and std take three numbers, std above 0")
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"recipe {self.name}: label_smoothing must be at least 0 and below 1")
        if self.growth and not any(name.startswith("resized-crop") for name in self.augment):
            raise UsageError(f"recipe {self.name}: growth needs resized-crop in augment, which makes the squares")
        if self.nesterov and not self.momentum > 0:
            raise UsageError(f"recipe {self.name}: nesterov=true needs momentum above 0")
        if not 0 <= self.warmup < 1:
            raise UsageError(f"recipe {self.name}: warmup must be at least 0 and below 1, not {self.warmup}")
        if self.interpolation not in INTERPOLATION:
            raise unknown_name("interpolation", self.interpolation, INTERPOLATION)
        if self.schedule not in ("steps", "cosine", "onecycle"):
            raise unknown_name("schedule", self.schedule, ("steps", "cosine", "onecycle"))

    def lr_at(self, epoch: int, step: int, steps: int) -> float:
        """The learning rate of step `step` of `steps` in `epoch`, both counted from 0."""
        if self.schedule == "steps":
            return self.lr * self.gamma ** sum(epoch >= m for m in self.milestones)
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        done = (epoch * steps + step + 1) / (self.epochs * steps)
        return self.lr * min(done / self.warmup if self.warmup else 1.0, (1 - done) / (1 - self.warmup))

    def size_at(self, epoch: int) -> int:
        """The square that the network sees in training in `epoch`, counted from 0."""
        return self.growth[epoch * len(self.growth) // self.epochs] if self.growth else self.size

    @property
    def has_virtual_classes(self) -> bool:
        """Whether the network learns classes that stand for those to come."""
        return self.objective == FACT

    def mixes_at(self, epoch: int) -> bool:
        """Whether FACT's losses count in `epoch`, counted from 0."""
        return self.has_virtual_classes and epoch >= self.mix_from

    def test_view(self) -> View:
        return View(self.size, self.resize, self.squash, self.interpolation)

    def train_view(self) -> View:
        if self.canvas is None:
            return self.test_view()
        return View(self.canvas, self.canvas, squash=True, interpolation=self.interpolation)

    def with_changes(self, given: Mapping[str, str]) -> "Recipe":
        """This recipe with some values replaced, as given on the command line.

        Another network brings its own preprocessing, where it has one; what is given goes before it.
        """
        fixed = {"name", "dataset", "source", "weights", "pretraining"}
        changes = parse_settings(type(self), given, f"recipe {self.name}", fixed)
        own = own_preprocessing(changes["network"]) if changes.get("network", self.network) != self.network else {}
        return dataclasses.replace(self, **{**own, **changes})

    def as_data(self) -> dict[str, Any]:
        """The recipe as plain data; what the objective does not know is left out."""
        left_out = ("objective", *OF_FACT) if self.objective == CROSS_ENTROPY else ()
        return {key: value for key, value in dataclasses.asdict(self).items() if key not in left_out}


def load_recipe(name: str, dataset: str) -> Recipe:
    """The recipe for a protocol's base classes: the one for the images that the protocol is made of."""
    images = load_protocol(dataset).dataset
    known = recipe_data()
    if images not in known.get(name, {}):
        raise unknown_name(f"recipe for {dataset}", name, recipe_names(images))
    own = known[name][images]
    same = known[own["like"]][images] if "like" in own else {}
    merged = {key: value for key, value in (same | own).items() if key != "like"}
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in merged.items()}
    return Recipe(name=name, dataset=dataset, **values)
