"""Nearest neighbour: what is lost by averaging the shots."""

from dataclasses import dataclass, field

from torch import Tensor

from fscil_bench.method import Base, Method, Support, cosine, side_by_side


@dataclass(kw_only=True)
class NearestNeighbour(Method):
    """The class of the most similar support image, by cosine; base classes keep their means."""

    paper = "Cover and Hart, Nearest Neighbor Pattern Classification, IEEE Transactions on Information Theory, 1967"
    equations = "textbook"
    baseline = "protonet"
    deviations = (
        "a base class is its mean, one neighbour: FSCIL keeps no images of old classes, and a nearest neighbour among "
        "hundreds would need them",
        "the support images of earlier sessions are kept as features, as many as the prototypes' shots",
    )
    privileges = ("exemplars",)
    exemplars = 5  # features of each new class
    classwise = True

    base: Tensor = field(init=False, repr=False, compare=False)  # [B, d]
    new: tuple[Tensor, ...] = field(init=False, repr=False, compare=False)  # [*, W, K, d] for each session
    donors_only: bool = field(init=False, repr=False, compare=False)

    def fit_base(self, base: Base) -> None:
        self.base, self.new, self.donors_only = base.means(), (), base.donors_only

    def add_session(self, support: Support) -> None:
        self.new = (*self.new, support.features)

    def scores(self, queries: Tensor) -> Tensor:
        parts = [_nearest(queries, support) for support in self.new]
        return side_by_side(parts if self.donors_only else [cosine(queries, self.base), *parts])


def _nearest(queries: Tensor, support: Tensor) -> Tensor:
    """The highest cosine to the images of each class: [*, Q, d], [*, W, K, d] -> [*, Q, W]."""
    way, shot = support.shape[-3:-1]
    return cosine(queries, support.flatten(-3, -2)).unflatten(-1, (way, shot)).amax(dim=-1)
