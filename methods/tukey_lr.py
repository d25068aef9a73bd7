"""Logistic regression on transformed features: distribution calibration's classifier and transformation alone."""

from dataclasses import dataclass

from torch import Tensor

from fscil_bench.method import setting, tukey

from .lr import LogisticRegression


@dataclass(kw_only=True)
class TukeyLogisticRegression(LogisticRegression):
    """Take the square root of every feature, then logistic regression."""

    paper = "Yang et al., Free Lunch for Few-shot Learning: Distribution Calibration, ICLR 2021 (its ablation)"
    equations = "as for lr; the transformation from the paper's code"
    baseline = "lr"
    deviations = (
        *LogisticRegression.deviations,
        "negative features keep their sign: sign(x) |x|^lambda; the paper's features are never negative",
    )

    power: float = setting(0.5, "lambda of Tukey's ladder of powers; 1 leaves features alone", origin="code", low=0.01)

    def embed(self, features: Tensor) -> Tensor:
        return tukey(features, self.power)
