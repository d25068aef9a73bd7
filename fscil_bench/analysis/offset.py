"""One offset on all new-class scores: the whole curve of base against new accuracy that it sweeps, exactly.

After the last session a test image has a best base class and a best new class. With an offset on the scores of all new
classes it is called new if the gap, best base score minus best new score, is below the offset. So the curve is decided
by gaps alone: sort them, and no grid of offsets is needed. Its area is known from generalised zero-shot learning
(Chao et al., ECCV 2016). A method's scores may have any unit: gaps are only compared with gaps of the same method.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fscil_bench.method import Method
from fscil_bench.metrics import Summary, summarise
from fscil_bench.protocols.draws import Draw, Split
from fscil_bench.runner import final_scores

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """For each draw, the gaps of the base images that the best base class gets right, and likewise of new images.

    Wrong ones stand as -inf (base) and +inf (new): no offset makes them right.
    """

    draws: tuple[str, ...]
    base: Tensor  # [D, base test images], falling
    new: Tensor  # [D, new test images], rising

    def of(self, names: Sequence[str]) -> "Curves":
        """Of these draws alone."""
        places = [self.draws.index(name) for name in names]
        return Curves(tuple(names), self.base[places], self.new[places])

    def joined(self, other: "Curves") -> "Curves":
        """With the draws of `other` after its own."""
        return Curves(self.draws + other.draws, torch.cat([self.base, other.base]), torch.cat([self.new, other.new]))

    def operating_point(self) -> tuple[Values, Values]:
        """BAcc and NAcc without an offset, for each draw."""
        return _percent(self.base >= 0), _percent(self.new < 0)

    def highest_base_acc(self) -> Values:
        """BAcc where no image is called new."""
        return _percent(self.base > -math.inf)

    def new_acc_at(self, base_acc: Values) -> Values:
        """The best NAcc of any offset that keeps BAcc at `base_acc` [D, A] or above; NaN where none does."""
        size = self.base.shape[1]
        kept = torch.from_numpy(np.ceil(base_acc * size / 100 - 1e-9)).long()  # base images that must stay right
        beyond = self.base.new_full((len(self.base), 1), -math.inf)
        limits = torch.cat((-beyond, self.base, beyond), dim=1)  # nothing to keep: any offset will do
        offset = limits.gather(1, kept.clamp(0, size + 1))
        hits = torch.searchsorted(self.new, offset)  # gaps below the offset
        return torch.where(offset == -math.inf, math.nan, 100 * hits / self.new.shape[1]).numpy()

    def areas(self) -> Values:
        """Percent of the unit square under the curve, for each draw."""
        hits = torch.searchsorted(self.new, self.base.contiguous())
        return (100 * hits.double().mean(dim=1) / self.new.shape[1]).numpy()


def trace(
    method: Method,
    split: Split,
    draws: Sequence[Draw],
    advance: Callable[[int], None] = lambda n: None,
    keep: Callable[[Curves], None] = lambda curves: None,
) -> Curves:
    """The method's curves, from its scores after the last session; `keep` gets them whenever draws are finished."""
    base, names = split.protocol.base, [draw.name for draw in draws]
    found: Curves | None = None
    for scores, targets in final_scores(method, split, draws, advance):
        best_base, base_winner = scores[..., :base].max(dim=-1)
        best_new, new_winner = scores[..., base:].max(dim=-1)
        is_base = targets < base
        of_base = torch.where(base_winner == targets, best_base - best_new, -math.inf)[..., is_base]
        of_new = torch.where(new_winner + base == targets, best_base - best_new, math.inf)[..., ~is_base]
        done = len(found.draws) if found else 0
        part = Curves(
            tuple(names[done : done + len(scores)]),
            of_base.sort(dim=-1, descending=True).values,
            of_new.sort(dim=-1).values,
        )
        found = found.joined(part) if found else part
        keep(found)
    if found is None:
        raise ValueError("curves need a draw at least")
    return found


@dataclass(frozen=True)
class Reach:
    """What of a method's gain on new classes a plain offset on its baseline reaches at the same BAcc; paired draws."""

    gain: Summary  # NAcc of the method minus NAcc of the baseline
    by_offset: Summary  # NAcc of the offset baseline at the method's BAcc, minus NAcc of the baseline
    beyond: Summary  # NAcc of the method minus that of the offset baseline
    more_area: Summary  # area of the method's curve minus the baseline's
    share: Summary  # by_offset / gain, percent; NaN where the gain is not clearly above 0


def reach(curves: Curves, baseline: Curves) -> Reach:
    """Compare a method with its baseline over the draws that both have."""
    common = [name for name in curves.draws if name in baseline.draws]
    if not common:
        raise ValueError("paired comparisons need the same draws")
    ours, theirs = curves.of(common), baseline.of(common)
    base_acc, new_acc = ours.operating_point()
    start = theirs.operating_point()[1]
    offset = theirs.new_acc_at(base_acc[:, None])[:, 0]
    gain, by_offset = new_acc - start, offset - start
    return Reach(
        summarise(gain),
        summarise(by_offset),
        summarise(new_acc - offset),
        summarise(ours.areas() - theirs.areas()),
        share_of(by_offset, gain),
    )


def _percent(right: Tensor) -> Values:
    """Of each draw."""
    return (100 * right.sum(dim=1).double() / right.shape[1]).numpy()


def share_of(part: Values, whole: Values) -> Summary:
    """100 sum(part) / sum(whole), its interval from the residuals of that ratio (delta method).

    Not defined where the whole is not clearly above 0, or with a single draw.
    """
    n = len(whole)
    total = summarise(whole)
    if not total.low > 0:
        return Summary(math.nan, math.nan, math.nan, math.nan, n)
    ratio = float(part.mean() / total.mean)
    residuals = summarise(100 * (part - ratio * whole) / total.mean)
    half = residuals.high - residuals.mean
    return Summary(100 * ratio, residuals.sd, 100 * ratio - half, 100 * ratio + half, n)
