"""ProtoNet on a frozen backbone: class means and cosine, the "Decoupled-Cosine" row of the FSCIL literature."""

from dataclasses import dataclass

from fscil_bench.method import PrototypeMethod


@dataclass(kw_only=True)
class ProtoNet(PrototypeMethod):
    """Classify by the cosine to the mean feature of each class."""

    paper = "Snell et al., Prototypical Networks for Few-shot Learning, NeurIPS 2017"
    equations = "the code of CEC, FACT and TEEN: means of features as they are, cosine to them"
    deviations = (
        "cosine instead of Euclidean distance and no episodic training, as in the FSCIL tables (Decoupled-Cosine)",
    )
