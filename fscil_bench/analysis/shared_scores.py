"""Predictions of many settings of a method that only calibrates: points and draws are one batch, base scores shared."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fscil_bench.analysis.prototypes import Means
from fscil_bench.errors import FscilError
from fscil_bench.method import Method, unit
from fscil_bench.metrics import measure
from fscil_bench.protocols.draws import Draw, Split
from fscil_bench.runner import ABSENT, CHUNK_BYTES, Predictions

Values = npt.NDArray[np.float64]


class SharedScores:
    """What all settings of a method that only calibrates share: features, class means, scores of base classes."""

    def __init__(self, split: Split, draws: Sequence[Draw]) -> None:
        self.means = Means(split, draws)
        self.split = split
        self.queries = unit(split.bank.features[torch.from_numpy(split.test_rows)].double()).T.contiguous()  # [d, Q]
        self.targets = torch.from_numpy(split.targets[split.test_rows])
        self.best, winner = (unit(self.means.base) @ self.queries).max(dim=0)
        self.winner = winner.to(torch.int16)

    def calibrated(self, method: Method) -> Tensor:
        """The method's prototypes of new classes, [D, new, d], at unit length."""
        new = unit(self.means.calibrated(method))
        if new.isnan().any():
            raise FscilError(f"{type(method).__name__}.calibrate gave NaN: check its settings and the bank")
        return new

    def headlines(self, calibrated: Tensor) -> Iterator[dict[str, Values]]:
        """The headline numbers of each point whose prototypes are given, [P, D, new, d]."""
        protocol = self.split.protocol
        for predictions in self.predictions(calibrated):
            yield measure(predictions, self.targets.numpy(), protocol.seen, protocol.base).headline

    def predictions(self, calibrated: Tensor) -> Predictions:
        """What `runner.walk` would note down, [P, D, sessions, test images]: new classes challenge the best so far."""
        protocol = self.split.protocol
        new = calibrated.flatten(0, 1)
        predictions = np.empty((len(new), protocol.sessions + 1, len(self.targets)), dtype=np.int16)
        predictions[:, 0] = torch.where(self.targets < protocol.base, self.winner, ABSENT).numpy()
        step = max(1, CHUNK_BYTES // (8 * new.shape[1] * len(self.targets)))
        for first in range(0, len(new), step):
            part = slice(first, first + step)
            scores = (new[part].flatten(0, 1) @ self.queries).unflatten(0, (-1, new.shape[1]))
            best = self.best.expand(len(scores), -1).clone()
            winner = self.winner.expand(len(scores), -1).clone()
            for number in protocol.new_classes:
                challenge = scores[:, number - protocol.base]  # [a part of P * D, Q]
                winner.masked_fill_(challenge > best, number)  # of equals the lowest class number wins
                torch.maximum(best, challenge, out=best)
                if number + 1 in protocol.seen:
                    session = protocol.seen.index(number + 1)
                    seen = torch.where(self.targets <= number, winner, ABSENT)
                    predictions[part, session] = seen.numpy()
        return predictions.reshape(*calibrated.shape[:2], *predictions.shape[1:])
