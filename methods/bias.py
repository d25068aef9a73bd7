"""A plain offset in favour of new classes: the control for every method that claims better prototypes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fscil_bench.method import PrototypeMethod, setting


@dataclass(kw_only=True)
class Bias(PrototypeMethod):
    """Add one number to the scores of all new classes.

    It knows nothing of the classes, so what a calibration gains on new classes beyond it is more than a shifted
    balance between base and new. `bias` alone is ProtoNet with the offset; `X+bias` gives it to any prototype method.
    """

    paper = "a control of this benchmark; the idea is calibrated stacking: Chao et al., ECCV 2016"
    equations = "this benchmark's; calibrated stacking subtracts such a number from the classes seen in training"
    baseline = "protonet"
    deviations = (
        "the offset is in units of the scores and was chosen on cosines: on scores of another kind (fact's, fecam's) "
        "the same number is another push",
    )

    # The largest whose AvgAcc is not clearly below the best on cifar100-val, and the same for all datasets:
    # `fscil-bench sweep --method bias --dataset cifar100-val --grid offset=0:0.12:0.005`.
    offset: float = setting(0.02, "what new classes get, in units of the score (cosine)", origin="val")

    def adjust(self, scores: Tensor, n_base: int) -> Tensor:
        is_new = torch.arange(scores.shape[-1]) >= n_base
        return torch.where(is_new, scores + self.offset, scores)
