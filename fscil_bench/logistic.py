"""Multinomial logistic regression, many problems at once: L-BFGS on batches, one line search a problem.

The objective is that of scikit-learn's LogisticRegression for three classes or more: the sum of log-losses plus
||W||^2 / (2 C), the intercept free. (For two classes scikit-learn fits one weight vector; here there is one for each.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import torch
from torch import Tensor

from fscil_bench.errors import FscilError

MEMORY = 10  # pairs of steps and gradient changes that L-BFGS remembers
ARMIJO, WOLFE = 1e-4, 0.9
LINE_SEARCH = 30  # evaluations at most; each halves the bracket


class Linear(NamedTuple):
    """A linear classifier."""

    weights: Tensor  # [*, c, d]
    intercept: Tensor  # [*, c]

    def scores(self, features: Tensor) -> Tensor:
        """[*, Q, d] -> [*, Q, c]."""
        return features @ self.weights.mT + self.intercept[..., None, :]

    def widened(self, n_classes: int) -> "Linear":
        """With zeros for classes it does not know yet: where a fit to more classes may start."""
        more = n_classes - self.weights.shape[-2]
        rows = self.weights.new_zeros(*self.weights.shape[:-2], more, self.weights.shape[-1])
        return Linear(torch.cat([self.weights, rows], dim=-2), torch.cat([self.intercept, rows[..., 0]], dim=-1))


def fit(
    features: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    c: float = 1.0,
    tol: float = 1e-4,
    max_iter: int = 1000,
    dtype: torch.dtype = torch.float64,
    start: Linear | None = None,
) -> Linear:
    """Fit features [*, n, d] to labels [*, n] or [n]; `c` is C of scikit-learn.

    A problem has converged when no entry of the gradient of the mean objective is larger than `tol`, as in
    scikit-learn. All problems are held in memory together: the caller decides how many those are.
    """
    _require_fit(features, labels, n_classes)
    *batch, n, d = features.shape
    x = features.reshape(-1, n, d).to(dtype)
    targets = labels.expand(*batch, n).reshape(-1, n)
    # The intercept is free, so centred features give the same classifier; they are far better conditioned.
    centre = x.mean(dim=1, keepdim=True)
    x = x - centre
    basis = None
    if n < d:  # the best weights lie in the span of the features: look for them there
        basis, triangle = torch.linalg.qr(x.mT)
        x = triangle.mT
    theta = x.new_zeros(len(x), n_classes, x.shape[-1] + 1)
    if start is not None:
        known = start.weights.to(dtype).expand(*batch, n_classes, d).reshape(-1, n_classes, d)
        offsets = start.intercept.to(dtype).expand(*batch, n_classes).reshape(-1, n_classes)
        theta[..., -1] = offsets + (known @ centre.mT).squeeze(-1)
        theta[..., :-1] = known if basis is None else known @ basis
    theta = _minimise(torch.cat([x, torch.ones_like(x[..., :1])], dim=-1), targets, 1 / c, theta, tol, max_iter)
    weights = theta[..., :-1] if basis is None else theta[..., :-1] @ basis.mT
    intercept = theta[..., -1] - (weights @ centre.mT).squeeze(-1)
    return Linear(weights.reshape(*batch, n_classes, d), intercept.reshape(*batch, n_classes))


def _require_fit(features: Tensor, labels: Tensor, n_classes: int) -> None:
    if labels.shape[-1:] != features.shape[-2:-1]:
        raise ValueError(f"features {[*features.shape]} and labels {[*labels.shape]} differ in the number of samples")
    if n_classes < 2 or labels.numel() == 0 or int(labels.min()) < 0 or int(labels.max()) >= n_classes:
        raise ValueError(f"labels must lie in 0 .. {n_classes - 1}, and there must be two classes or more")
    if not torch.isfinite(features).all():
        raise ValueError("features must be finite numbers")


@dataclass
class _State:
    """Where a batch of problems stands. The first dimension of every tensor is the problem."""

    x: Tensor  # [p, n, k], the last column all ones
    targets: Tensor  # [p, n]
    penalty: float
    theta: Tensor  # [p, c, k], the last column the intercept
    logits: Tensor  # [p, n, c]
    value: Tensor  # [p]
    gradient: Tensor  # [p, c, k]
    curvature: Tensor  # [p], second derivative along the steepest descent: how long the first step should be
    steps: list[Tensor] = field(default_factory=list)
    changes: list[Tensor] = field(default_factory=list)  # of the gradient, step by step

    @classmethod
    def begin(cls, x: Tensor, targets: Tensor, penalty: float, theta: Tensor) -> Self:
        logits = x @ theta.mT
        value, share = _loss(logits, targets)
        inside = theta[..., :-1]
        value = value + penalty / 2 * _dot(inside, inside)
        gradient = _gradient(x, targets, share, theta, penalty)
        along = x @ gradient.mT
        spread = _dot(share * along, along) - (share * along).sum(dim=-1).square().sum(dim=-1)
        curvature = spread + penalty * _dot(gradient[..., :-1], gradient[..., :-1])
        return cls(x, targets, penalty, theta, logits, value, gradient, curvature)

    def keep(self, rows: Tensor) -> None:
        """Drop all problems but these."""
        for name in ("x", "targets", "theta", "logits", "value", "gradient", "curvature"):
            setattr(self, name, getattr(self, name)[rows])
        self.steps = [step[rows] for step in self.steps]
        self.changes = [change[rows] for change in self.changes]


def _minimise(x: Tensor, targets: Tensor, penalty: float, theta: Tensor, tol: float, max_iter: int) -> Tensor:
    """The best theta of every problem; one that has converged leaves the batch."""
    state = _State.begin(x, targets, penalty, theta)
    found = theta.clone()
    places = torch.arange(len(x))
    open_ = torch.ones(len(x), dtype=torch.bool)
    for iteration in range(max_iter + 1):
        steepest = state.gradient.abs().amax(dim=(1, 2)) / x.shape[1]
        done = open_ & (steepest <= tol)
        found[places[done]] = state.theta[done]
        open_ = open_ & ~done
        if not open_.any():
            return found
        if open_.sum() <= len(open_) / 2:  # dropping problems copies the others: not for each one
            state.keep(open_)
            places, open_ = places[open_], open_[open_]
        if iteration < max_iter:
            _step(state)
    raise FscilError(
        f"logistic regression: {int(open_.sum())} of {len(x)} problems have not converged after {max_iter} iterations "
        f"(gradient {float(steepest[open_].max()):.1e}, wanted {tol:.1e}): raise max_iter, loosen tol, or lower C"
    )


def _step(state: _State) -> None:
    """One iteration of L-BFGS."""
    direction = _direction(state.gradient, state.steps, state.changes)
    slope = _dot(state.gradient, direction)
    uphill = slope >= 0  # by rounding alone: the objective is convex
    direction = torch.where(uphill[:, None, None], -state.gradient, direction)
    slope = _dot(state.gradient, direction)
    first = (-slope / state.curvature) if not state.steps else torch.ones_like(slope)
    length, share = _search(state, direction, slope, first)
    step = length[:, None, None] * direction
    theta = state.theta + step
    gradient = _gradient(state.x, state.targets, share, theta, state.penalty)
    state.steps = [*state.steps[-MEMORY + 1 :], step]
    state.changes = [*state.changes[-MEMORY + 1 :], gradient - state.gradient]
    state.theta, state.gradient = theta, gradient


def _search(state: _State, direction: Tensor, slope: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """A step length for every problem that meets Wolfe's conditions, and the class shares there.

    Logits are linear in the length, so trying one costs no product with the features.
    """
    along = state.x @ direction.mT
    along_target = along.gather(-1, state.targets[..., None]).sum(dim=(1, 2))
    inside = direction[..., :-1]
    rise, bend = _dot(state.theta[..., :-1], inside) * state.penalty, _dot(inside, inside) * state.penalty
    slack = 10 * torch.finfo(slope.dtype).eps * state.value.abs()  # what rounding may do to the value
    base = state.value - _loss(state.logits, state.targets)[0]  # the penalty's part
    low, high = torch.zeros_like(slope), torch.full_like(slope, torch.inf)
    for _ in range(LINE_SEARCH):
        logits = state.logits + length[:, None, None] * along
        loss, share = _loss(logits, state.targets)
        value = loss + base + length * rise + length.square() / 2 * bend
        here = _dot(share, along) - along_target + rise + length * bend
        falls = value <= state.value + ARMIJO * length * slope + slack
        good = falls & (here.abs() <= WOLFE * slope.abs())
        if good.all():
            break
        too_far = ~falls | (here > 0)
        high = torch.where(~good & too_far, length, high)
        low = torch.where(~good & ~too_far, length, low)
        other = torch.where(high.isinf(), 2 * length, (low + high) / 2)
        length = torch.where(good, length, other)
    state.logits, state.value = logits, value
    return length, share


def _direction(gradient: Tensor, steps: Sequence[Tensor], changes: Sequence[Tensor]) -> Tensor:
    """Minus the gradient, times L-BFGS's estimate of the inverse second derivative (two-loop recursion)."""
    if not steps:
        return -gradient
    along = [_dot(step, change) for step, change in zip(steps, changes, strict=True)]
    weight = [torch.where(a > 0, 1 / a, 0.0) for a in along]  # a step without curvature tells nothing
    result, past = gradient, []
    for step, change, w in zip(reversed(steps), reversed(changes), reversed(weight), strict=True):
        past.append(w * _dot(step, result))
        result = result - past[-1][:, None, None] * change
    size = _dot(changes[-1], changes[-1])
    result = result * torch.where(along[-1] > 0, along[-1] / size, 1.0)[:, None, None]
    for step, change, w, p in zip(steps, changes, weight, reversed(past), strict=True):
        result = result + (p - w * _dot(change, result))[:, None, None] * step
    return -result


def _loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of log-losses of each problem, [p], and each class's share, [p, n, c]."""
    logs = logits.log_softmax(dim=-1)
    return -logs.gather(-1, targets[..., None]).sum(dim=(1, 2)), logs.exp()


def _gradient(x: Tensor, targets: Tensor, share: Tensor, theta: Tensor, penalty: float) -> Tensor:
    error = share.scatter_add(-1, targets[..., None], -torch.ones_like(share[..., :1]))
    gradient = error.mT @ x
    gradient[..., :-1] += penalty * theta[..., :-1]
    return gradient


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each problem's entries, [p]."""
    return (a * b).sum(dim=tuple(range(1, a.ndim)))
