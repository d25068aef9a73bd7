"""Prototypes from all training images of the new classes: how far better prototypes could take the same classifier."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Base, PrototypeMethod, Support


@dataclass(kw_only=True)
class OraclePrototypes(PrototypeMethod):
    """Class means of all training images, not of the few that a session brings: what any prototypes may aim at."""

    paper = "a control of this benchmark: ProtoNet with the class means that few shots estimate"
    equations = "this benchmark's"
    baseline = "protonet"
    privileges = ("all_data",)
    episodes = False

    def fit_base(self, base: Base) -> None:
        if base.donors_only:
            raise UsageError("oracle-prototypes needs all training images of a class; an episode has a few: use run")
        super().fit_base(base)

    def prototypes(self, support: Support) -> Tensor:
        if not support.all_features:
            raise FscilError("oracle-prototypes was not given all training images: only the runner of sessions can")
        return torch.stack([self.embed(images).mean(dim=0) for images in support.all_features])
