"""FACT: class means that share their scores with virtual prototypes, for which the base training kept room."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fscil_bench.method import Base, PrototypeMethod, Support, cosine, setting, side_by_side, unit


@dataclass(kw_only=True)
class FACT(PrototypeMethod):
    """Mix the softmax of cosines with what the trained virtual prototypes, as a second view, say of each class.

    A query's cosines to the virtual prototypes (D, rows of the learned head beyond the base classes) are compared with
    those of every class mean. In session 0 there are cosines alone. `fact+teen` calibrates the means, and keeps
    their length, on which variant=code depends.
    """

    paper = "Zhou et al., Forward Compatible Few-Shot Class-Incremental Learning, CVPR 2022"
    equations = (
        "the public code's: losses of the base training and the mixed inference; the paper's text was not compared"
    )
    baseline = "protonet"
    privileges = ("total_classes",)  # as many virtual classes as are to come
    objective = "fact"
    classwise = False  # a softmax over all classes seen
    variants = ({"variant": "classes"},)
    deviations = (
        "base training: one pass through the network for a batch and one through its upper half for the mixed maps, "
        "where the public code passes up to four times; batch norm therefore sees other sums",
        "base training keeps the frozen virtual prototypes as a copy; the public code has a view that only moving to "
        "a GPU takes apart",
        "one classifier in session 0, cosines to class means; the paper reports the better of it and the learned head",
        "the paper has no few-shot episodes; there the mixed inference is over the episode's classes",
    )

    eta: float = setting(0.1, "weight of the virtual prototypes' view", origin="code", low=0, high=1)
    top: int = setting(40, "how many virtual prototypes count for a query, the nearest", origin="code", low=1)
    variant: Literal["code", "classes"] = setting(
        "code",
        "class means at unit length in every dimension over classes (code) or each for itself (classes)",
        origin="code",
    )

    virtual: Tensor = field(init=False, repr=False, compare=False)  # D: [V, d], unit length
    scale: float = field(init=False, repr=False, compare=False)
    lengths: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, 1] for each session

    def fit_base(self, base: Base) -> None:
        super().fit_base(base)
        self.virtual, self.scale, self.lengths = unit(base.head["virtual"].double()), float(base.head["scale"]), ()

    def prototypes(self, support: Support) -> Tensor:
        means = super().prototypes(support)
        self.lengths = (*self.lengths, means.norm(dim=-1, keepdim=True))
        return means

    def scores(self, queries: Tensor) -> Tensor:
        new = [length * unit(prototypes) for length, prototypes in zip(self.lengths, self.new, strict=True)]
        parts = new if self.donors_only else [self.base, *new]
        classes = side_by_side([part.mT for part in parts]).mT  # W: [*, C, d]
        cosines = cosine(queries, classes)
        if not self.new:
            return self.adjusted(cosines)
        rows = (
            unit(classes)
            if self.variant == "classes"
            else classes / classes.norm(dim=-2, keepdim=True).clamp_min(1e-12)
        )
        near = cosine(queries, self.virtual)  # s = D f: [*, Q, V]
        if self.top < near.shape[-1]:
            least = near.topk(self.top, dim=-1).values[..., -1:]
            near = torch.where(near >= least, near, 0.0)
        of_classes = self.virtual @ rows.mT  # A = D N: [*, V, C]
        seen_so = torch.einsum("qv,...vc->...qc", near, of_classes) if near.ndim == 2 else near @ of_classes
        mixed = self.eta * seen_so.softmax(dim=-1) + (1 - self.eta) * (self.scale * cosines).softmax(dim=-1)
        return self.adjusted(mixed)
