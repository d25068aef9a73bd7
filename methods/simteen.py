"""SimTEEN: TEEN with the few most similar base prototypes in place of a softmax over all."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fscil_bench.method import Default, PrototypeMethod, cosine, setting, unit


@dataclass(kw_only=True)
class SimTEEN(PrototypeMethod):
    """Pull new prototypes towards the K base prototypes most like them."""

    paper = "Wang et al., Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration, NeurIPS 2023"
    equations = "the paper's equation of SimTEEN, with the unit lengths of TEEN's code; SimTEEN has no public code"
    baseline = "protonet"
    deviations = (
        "the mean of the K base prototypes, where the paper prints their sum without 1/K (reduce=sum gives that)",
        "unit-length prototypes and the weight of the base, as in TEEN's code; no public code of SimTEEN exists",
        "k=5 is the middle of the paper's grid 1, 3, 5, 7, 9; the value behind its figure is not stated",
    )
    defaults = (Default({"dataset": "cifar100"}, {"shift_weight": 0.1}, origin="own"),)

    shift_weight: float = setting(
        0.5, "weight of the base prototypes: 1 - alpha of the paper", origin="own", low=0, high=1
    )
    k: int = setting(5, "how many base prototypes", origin="own", low=1)
    reduce: Literal["mean", "sum"] = setting("mean", "how they are put together", origin="own")

    def calibrate(self, new: Tensor, base: Tensor) -> Tensor:
        nearest = cosine(new, base).topk(min(self.k, len(base)), dim=-1).indices  # [*, W, K]
        neighbours = unit(base)[nearest]  # [*, W, K, d]
        pull = neighbours.mean(dim=-2) if self.reduce == "mean" else neighbours.sum(dim=-2)
        return (1 - self.shift_weight) * unit(new) + self.shift_weight * pull
