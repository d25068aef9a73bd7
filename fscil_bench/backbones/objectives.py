"""What base training minimises, by name: cross-entropy alone, or FACT, which keeps room for classes to come.

An objective is a module around the classifier whose weights it trains: its `forward` takes a batch through the network
and returns losses, so that one call is one pass in every process.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil_bench.backbones.networks import CosineClassifier, Network, make_network, seeded
from fscil_bench.backbones.recipes import FACT, Recipe

NEVER = -1e9  # a logit that no softmax notices
ASSIGNED = 3  # base classes of every virtual class
LEAST_PAIRS = 2  # batch norm needs more than one image


class Losses(NamedTuple):
    """Of one batch, summed over its images."""

    total: Tensor
    cross_entropy: Tensor
    right: Tensor  # how many images the base classes' logits get right


class Mixing(NamedTuple):
    """How the images of a batch are mixed, each with another one."""

    weight: float  # of the image itself; the other has the rest
    partners: Tensor  # [n]

    @classmethod
    def drawn(cls, chance: np.random.Generator, alpha: float, total: int, share: slice) -> "Mixing":
        """One weight for the global batch of `total` images, and an order of the images that a process has of it."""
        weight, keys = float(chance.beta(alpha, alpha)), chance.random(total)[share]
        return cls(weight, torch.from_numpy(keys.argsort()))


class CrossEntropy(nn.Module):
    """Cross-entropy over the base classes."""

    def __init__(self, classifier: CosineClassifier, recipe: Recipe) -> None:
        super().__init__()
        self.classifier = classifier
        self.label_smoothing = recipe.label_smoothing

    def forward(self, inputs: Tensor, labels: Tensor, mixing: Mixing | None = None) -> Losses:
        logits = self.classifier(inputs)
        loss = self.over_base(logits, labels)
        return Losses(loss, loss.detach(), _right(logits, labels))

    def over_base(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=self.label_smoothing)


class RoomyClassifier(CosineClassifier):
    """A cosine head with rows for virtual classes behind those of the base classes.

    `reserved` are the virtual rows as they were at the start, which training must not move: a copy, not a view of the
    head. `assigned` says which virtual classes an image of a base class may be taken for, next to its own.
    """

    network: Network
    reserved: Tensor  # [V, d]
    assigned: Tensor  # [B, V], 0 or 1

    def __init__(self, network: Network, n_classes: int, n_virtual: int, scale: float) -> None:
        super().__init__(network, network.dim, n_classes + n_virtual, scale)
        self.n_classes = n_classes
        nn.init.orthogonal_(self.head.weight)
        self.register_buffer("reserved", self.head.weight[n_classes:].detach().clone())
        assigned = torch.zeros(n_classes, n_virtual)
        for virtual in range(n_virtual):
            assigned[torch.randperm(n_classes)[:ASSIGNED], virtual] = 1
        self.register_buffer("assigned", assigned)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the base classes."""
        return self.logits(self.network(x), self.head.weight[: self.n_classes])


class Fact(CrossEntropy):
    """FACT: every image also fits, second best, a virtual class, and mixtures of two classes fit one best of all.

    One pass through the lower half of the network for a batch, one through the upper half for its images and one for
    their mixtures.
    """

    classifier: RoomyClassifier

    def __init__(self, classifier: RoomyClassifier, recipe: Recipe) -> None:
        super().__init__(classifier, recipe)
        self.balance = recipe.balance

    def forward(self, inputs: Tensor, labels: Tensor, mixing: Mixing | None = None) -> Losses:
        classifier, n = self.classifier, self.classifier.n_classes
        maps = classifier.network.lower(inputs)
        features = classifier.network.upper(maps)
        logits = classifier.logits(features, torch.cat([classifier.head.weight[:n], classifier.reserved]))
        base = self.over_base(logits[:, :n], labels)
        total = base
        if mixing is not None:
            total = base + self.balance * (self._second_best(logits, labels) + self._mixed(maps, labels, mixing))
        return Losses(total, base.detach(), _right(logits[:, :n], labels))

    def _second_best(self, logits: Tensor, labels: Tensor) -> Tensor:
        """L2: without its own class, an image belongs to the best of the virtual classes assigned to that class."""
        n = self.classifier.n_classes
        others = logits.scatter(1, labels[:, None], NEVER)
        # Virtual classes that are not assigned count as 0: one of them wins where all assigned ones are below.
        best = n + (others[:, n:] * self.classifier.assigned[labels]).argmax(dim=1)
        return F.cross_entropy(others, best, reduction="sum")

    def _mixed(self, maps: Tensor, labels: Tensor, mixing: Mixing) -> Tensor:
        """L3 + L4 of mixed maps: their best virtual class, and without it their best base class, as if a batch."""
        classifier, n = self.classifier, self.classifier.n_classes
        partners = mixing.partners.to(labels.device)
        pairs = (labels != labels[partners]).nonzero().squeeze(1)
        if len(pairs) < LEAST_PAIRS:
            return maps.new_zeros(())
        mixed = mixing.weight * maps[pairs] + (1 - mixing.weight) * maps[partners[pairs]]
        logits = classifier.logits(classifier.network.upper(mixed), classifier.head.weight)
        virtual, base = n + logits[:, n:].argmax(dim=1), logits[:, :n].argmax(dim=1)
        others = logits.scatter(1, virtual[:, None], NEVER)
        return len(labels) * (F.cross_entropy(logits, virtual) + F.cross_entropy(others, base))


def build_objective(recipe: Recipe, n_classes: int, n_virtual: int, seed: int) -> CrossEntropy:
    """The recipe's network under a fresh cosine head, and what it is trained for.

    The network is made first, so that trainings of one seed start alike whatever their objective.
    """

    def build() -> CrossEntropy:
        network = make_network(recipe.network)
        if recipe.objective == FACT:
            return Fact(RoomyClassifier(network, n_classes, n_virtual, recipe.scale), recipe)
        return CrossEntropy(CosineClassifier(network, network.dim, n_classes, recipe.scale), recipe)

    return seeded(build, seed)


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(dim=1) == labels).sum()
