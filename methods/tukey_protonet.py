"""ProtoNet on transformed features: how much of distribution calibration is the transformation alone."""

from dataclasses import dataclass

from torch import Tensor

from fscil_bench.method import PrototypeMethod, setting, tukey


@dataclass(kw_only=True)
class TukeyProtoNet(PrototypeMethod):
    """Take the square root of every feature, then class means and cosine."""

    paper = "Yang et al., Free Lunch for Few-shot Learning: Distribution Calibration, ICLR 2021 (its transformation)"
    equations = "this benchmark's; the transformation from the paper's code"
    baseline = "protonet"
    deviations = (
        "an ablation: the paper has no row of class means after the transformation alone",
        "negative features keep their sign: sign(x) |x|^lambda; the paper's features are never negative",
    )

    power: float = setting(0.5, "lambda of Tukey's ladder of powers; 1 leaves features alone", origin="code", low=0.01)

    def embed(self, features: Tensor) -> Tensor:
        return tukey(features, self.power)
