"""TEEN: training-free prototype calibration."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fscil_bench.method import Default, PrototypeMethod, cosine, setting, unit


@dataclass(kw_only=True)
class TEEN(PrototypeMethod):
    """Pull new prototypes towards the base prototypes they resemble.

    The paper and its code disagree. In the code, prototypes and the mixture have unit length before they are mixed, and
    on CIFAR-100 the base mixture gets the weight 0.1; the paper mixes raw means and gives the *original* prototype the
    weight alpha = 0.1, so the base mixture gets 0.9. `variant` chooses; the code's is the default.
    """

    paper = "Wang et al., Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration, NeurIPS 2023"
    equations = "the paper's eq. 4 to 6; unit lengths from the code (variant=code)"
    deviations = (
        "class means classify in session 0 too; the code takes them or the learned head, whichever scores better there",
        "few-shot episodes use features as they are and the settings of the sessions; the paper states neither for its "
        "few-shot table, and there is no code of it",
    )
    baseline = "protonet"
    compared_with = ("dc-lr",)  # the paper's few-shot table
    variants = ({"variant": "paper"},)
    defaults = (
        Default({"dataset": "cifar100"}, {"shift_weight": 0.1}, origin="code"),
        Default({"variant": "paper"}, {"shift_weight": 0.5}, origin="paper"),
        Default({"variant": "paper", "dataset": "cifar100"}, {"shift_weight": 0.9}, origin="paper"),
    )

    shift_weight: float = setting(
        0.5, "weight of the base mixture: 1 - alpha of the paper", origin="code", low=0, high=1
    )
    tau: float = setting(16.0, "sharpness of the softmax over base prototypes", origin="code", low=0)
    variant: Literal["code", "paper"] = setting(
        "code", "unit-length (code) or raw (paper) prototypes in the mixture", origin="code"
    )

    def calibrate(self, new: Tensor, base: Tensor) -> Tensor:
        weights = (self.tau * cosine(new, base)).softmax(dim=-1)  # eq. 5: [*, W, B]
        if self.variant == "code":
            new, base = unit(new), unit(base)
        mixture = weights @ base  # eq. 6
        if self.variant == "code":
            mixture = unit(mixture)
        return (1 - self.shift_weight) * new + self.shift_weight * mixture  # eq. 4
