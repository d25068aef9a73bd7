"""New prototypes before and after calibration, and how near they are to the mean of all training images of their class.

Features after a ReLU all lie in one corner of the space, so plain cosines of any two prototypes are high and move
little. The centred cosine takes the mean of the base prototypes (all at unit length) away first, which tells directions
apart.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fscil_bench.errors import UsageError
from fscil_bench.method import Base, Method, PrototypeMethod, Support, unit
from fscil_bench.metrics import Summary, summarise
from fscil_bench.protocols.draws import Draw, Rows, Split

Values = npt.NDArray[np.float64]


def only_calibrates(method: Method) -> bool:
    """Whether it is a prototype method that writes `calibrate` and leaves everything else to the harness."""
    if not isinstance(method, PrototypeMethod):
        return False
    return all(_is_plain(type(part)) for part in (method, *method.further))


def _is_plain(kind: type[PrototypeMethod]) -> bool:
    verbs = [name for name in dir(PrototypeMethod) if callable(getattr(PrototypeMethod, name)) and name[:2] != "__"]
    same = [inspect.getattr_static(kind, v) is inspect.getattr_static(PrototypeMethod, v) for v in verbs]
    needs = (kind.privileges, kind.sampled, kind.objective, kind.exemplars)
    return not any(needs) and all(same[i] for i, verb in enumerate(verbs) if verb != "calibrate")


class Means:
    """The class means that calibration starts from: what does not depend on the method or its settings."""

    def __init__(self, split: Split, draws: Sequence[Draw]) -> None:
        self.split = split
        self.draws = tuple(draws)
        targets = torch.from_numpy(split.targets[split.base_rows])
        self.base = Base(self._features(split.base_rows), targets, split.protocol.base).means()  # [B, d]
        self.shots = torch.stack([self._features(draw.rows).mean(dim=-2) for draw in draws])  # [D, new, d]

    def oracle(self) -> Tensor:
        """The mean of all training images of each new class, [new, d]."""
        split, new = self.split, self.split.protocol.new_classes
        rows = split.train_rows[split.targets[split.train_rows] >= split.protocol.base]
        labels = torch.from_numpy(split.targets[rows] - split.protocol.base)
        return Base(self._features(rows), labels, len(new)).means()

    def calibrated(self, method: Method) -> Tensor:
        """The prototypes that the method gives the new classes, [D, new, d]."""
        if not (isinstance(method, PrototypeMethod) and only_calibrates(method)):
            raise UsageError(
                f"{type(method).__name__} does more, or less, than calibrate class means: its prototypes cannot be "
                "compared with them"
            )
        walker = method.fork()
        # One feature a class, its mean: what the harness makes class means of is them.
        walker.fit_base(Base(self.base, torch.arange(len(self.base)), len(self.base)))
        for means in self.shots.split(self.split.protocol.way, dim=-2):
            walker.add_session(Support(means[..., None, :]))
        return torch.cat(walker.new, dim=-2)

    def _features(self, rows: Rows) -> Tensor:
        return self.split.bank.features[torch.from_numpy(rows)].double()


@dataclass(frozen=True)
class Nearness:
    """Cosines of new prototypes to their oracles, [draws, new classes]."""

    before: Values
    after: Values

    @property
    def closer(self) -> Values:
        """Percent of classes that came closer, for each draw."""
        return np.asarray(100 * np.mean(self.after > self.before, axis=1))

    def summaries(self) -> dict[str, Summary]:
        """Means over classes, with intervals over draws; `gain` is paired, that of a share ends at 0 and 100 %."""
        by_draw = {"before": self.before, "after": self.after, "gain": self.after - self.before}
        found = {key: summarise(values.mean(axis=1)) for key, values in by_draw.items()}
        closer = summarise(self.closer)
        low, high = np.clip([closer.low, closer.high], 0, 100).tolist()  # with few draws Student's t reaches beyond
        return {**found, "closer": replace(closer, low=low, high=high)}


def nearness(means: Means, calibrated: Tensor) -> dict[str, Nearness]:
    """How near prototypes are to their oracles: by plain and by centred cosine."""
    oracle = means.oracle()
    centre = unit(means.base).mean(dim=0)

    def compared(middle: Tensor | None) -> Nearness:
        goal, before, after = (_seen_from(middle, p) for p in (oracle, means.shots, calibrated))
        return Nearness(*(torch.einsum("...cd,cd->...c", given, goal).numpy() for given in (before, after)))

    return {"cosine": compared(None), "centred": compared(centre)}


def _seen_from(middle: Tensor | None, prototypes: Tensor) -> Tensor:
    directions = unit(prototypes)
    return directions if middle is None else unit(directions - middle)
