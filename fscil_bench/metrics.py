"""Every number, from predictions and targets alone. Percent, 0 to 100; NaN where a number is not defined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

DEFINITIONS = {
    "avg_acc": "AvgAcc: share of right predictions over all test images of all classes seen",
    "base_acc": "BAcc: the same over test images of base classes, predicted among all classes seen",
    "new_acc": "NAcc: the same over test images of new classes, predicted among all classes seen",
    "hmean": "HMean: harmonic mean of BAcc and NAcc, taken for each draw",
    "fnr": "FNR: share of base-class test images predicted as some new class",
    "fpr": "FPR: share of new-class test images predicted as some base class",
}
SHORT = {"avg_acc": "AvgAcc", "base_acc": "BAcc", "new_acc": "NAcc", "hmean": "HMean", "fnr": "FNR", "fpr": "FPR"}
HEADLINE = {
    "avg_acc": "AvgAcc",
    "hmean": "HMean",
    "new_acc": "NAcc",
    "base_acc": "BAcc",
    "pd": "PD",
    "mean_acc": "mean AvgAcc",
}
PD_DEFINITION = "PD: AvgAcc of session 0 minus AvgAcc of the last session, the method's own classifier at both ends"
PAPER_BATCH = 100


@dataclass(frozen=True)
class Metrics:
    """Numbers by session, and the headline: the last session's, PD, and the mean of AvgAcc over sessions."""

    by_session: dict[str, Values]  # [draws, sessions]

    @property
    def headline(self) -> dict[str, Values]:
        """[draws] each."""
        accuracy = self.by_session["avg_acc"]
        last = {key: values[:, -1] for key, values in self.by_session.items()}
        return {**last, "pd": accuracy[:, 0] - accuracy[:, -1], "mean_acc": accuracy.mean(axis=1)}


def measure(
    predictions: npt.NDArray[np.int16], targets: npt.NDArray[np.int64], seen: Sequence[int], base: int
) -> Metrics:
    """Metrics of predictions [draws, sessions, images]; the test set of a session is every image of a class seen."""
    rows = []
    for session, count in enumerate(seen):
        present = targets < count
        is_base = targets[present] < base
        predicted, wanted = predictions[:, session, present], targets[present]
        right = predicted == wanted
        base_acc, new_acc = _share(right[:, is_base]), _share(right[:, ~is_base])
        rows.append(
            {
                "avg_acc": _share(right),
                "base_acc": base_acc,
                "new_acc": new_acc,
                "hmean": harmonic_mean(base_acc, new_acc),
                "fnr": _share(predicted[:, is_base] >= base) if session else np.full(len(predictions), np.nan),
                "fpr": _share(predicted[:, ~is_base] < base),
            }
        )
    return Metrics({key: np.stack([row[key] for row in rows], axis=1) for key in DEFINITIONS})


def measure_as_papers(
    predictions: npt.NDArray[np.int16],
    targets: npt.NDArray[np.int64],
    seen: Sequence[int],
    base: int,
    learned_head: float | None = None,
) -> Metrics:
    """The numbers as the public FSCIL code computes them; for comparison with its tables, never for ranking.

    AvgAcc is the mean over class-sorted batches of 100 images, at session 0 the better of that and the learned head;
    BAcc and NAcc are means over classes, not images. Targets must be sorted by class.
    """
    if (np.diff(targets) < 0).any():
        raise ValueError("targets must be sorted by class")
    rows = []
    for session, count in enumerate(seen):
        present = targets < count
        wanted = targets[present]
        right = predictions[:, session, present] == wanted
        edges = np.arange(0, len(wanted), PAPER_BATCH)
        avg_acc = 100 * np.mean(np.add.reduceat(right, edges, axis=1) / np.diff([*edges, len(wanted)]), axis=1)
        if session == 0 and learned_head is not None:
            avg_acc = np.maximum(avg_acc, learned_head)
        starts = np.searchsorted(wanted, np.arange(count))
        recall = 100 * np.add.reduceat(right, starts, axis=1) / np.diff([*starts, len(wanted)])
        base_acc = recall[:, :base].mean(axis=1)
        new_acc = recall[:, base:].mean(axis=1) if session else np.full(len(right), np.nan)
        rows.append(
            {"avg_acc": avg_acc, "base_acc": base_acc, "new_acc": new_acc, "hmean": harmonic_mean(base_acc, new_acc)}
        )
    return Metrics({key: np.stack([row[key] for row in rows], axis=1) for key in rows[0]})


def harmonic_mean(a: Values, b: Values) -> Values:
    """2ab / (a + b); 0 where both are 0, NaN where one is."""
    total = a + b
    mean: Values = np.where(total == 0, 0.0, 2 * a * b / np.where(total == 0, 1.0, total))
    return mean


@dataclass(frozen=True)
class Summary:
    """A mean over draws with its 95 % Student-t interval, and the spread of the draws themselves."""

    mean: float
    sd: float
    low: float
    high: float
    n: int


def summarise(values: Values) -> Summary:
    """Of one number a draw. With a single draw there is no spread and no interval: NaN."""
    n = len(values)
    mean = math.fsum(values) / n  # exact, so that rounding does not depend on the order of summation
    if n < 2:
        return Summary(mean, math.nan, math.nan, math.nan, n)
    from scipy.special import stdtrit

    sd = float(np.std(values, ddof=1))
    half = float(stdtrit(n - 1, 0.975)) * sd / math.sqrt(n)
    return Summary(mean, sd, mean - half, mean + half, n)


def _share(hits: npt.NDArray[np.bool_]) -> Values:
    """Percent of True in each row; NaN if there is nothing to count."""
    if hits.shape[1] == 0:
        return np.full(len(hits), np.nan)
    return np.asarray(100 * hits.sum(axis=1) / hits.shape[1], dtype=np.float64)
