"""Multinomial logistic regression, many problems at once: L-BFGS on batches, one line search a problem.

The objective is that of scikit-learn's LogisticRegression for three classes or more: the sum of log-losses plus
||W||^2 / (2 C), the intercept free, all divided by the number of samples. (For two classes scikit-learn fits one weight
vector; here there is one for each.)

What makes it fast is where L-BFGS starts from: its first guess of the second derivative is the covariance of the
features, times how undecided the samples are at that point, plus the penalty. The covariance is that within classes,
taken as diagonal along `Axes`, and that of the class means, which has few dimensions.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from fscil_bench.errors import FscilError

MEMORY = 10  # pairs of steps and gradient changes that L-BFGS remembers
ARMIJO, WOLFE = 1e-4, 0.9
LINE_SEARCH = 30  # evaluations at most; each halves the bracket
BLOCK_BYTES = 8 * 2**20  # of features worked on at a time: they are read again and again, so from a cache if possible


class Axes(NamedTuple):
    """Directions along which features of a class do not depend on each other, so that a fit converges soon."""

    turn: Tensor  # [d, d], orthogonal: a feature x becomes x @ turn
    spread: Tensor  # [d]: the variance within classes along each direction

    @classmethod
    def of(cls, covariance: Tensor) -> Self:
        """The principal axes of a covariance within classes."""
        values, vectors = torch.linalg.eigh(covariance)
        return cls(vectors, values.clamp_min(0))

    def covariance(self) -> Tensor:
        """That within classes, if nothing but the spread were known."""
        return (self.turn * self.spread) @ self.turn.mT

    def to(self, dtype: torch.dtype) -> "Axes":
        return Axes(self.turn.to(dtype), self.spread.to(dtype))


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
    axes: Axes | None = None,
) -> Linear:
    """Fit features [*, n, d] to labels [*, n] or [n]; `c` is C of scikit-learn.

    A problem has converged when no entry of the gradient of the mean objective is larger than `tol`, as in
    scikit-learn, but of weights for centred features. With `axes`, features are given turned; the gradient that counts,
    `start` and the classifier are those for features as they were. All problems are held in memory together: the caller
    decides how many those are.
    """
    _require_fit(features, labels, n_classes)
    *batch, n, d = features.shape
    x = features.reshape(-1, n, d).to(dtype)
    targets = labels.expand(*batch, n).reshape(-1, n)
    known = None
    if start is not None:
        weights = start.weights.to(dtype).expand(*batch, n_classes, d).reshape(-1, n_classes, d)
        known = Linear(weights, start.intercept.to(dtype).expand(*batch, n_classes).reshape(-1, n_classes))
    size = max(1, BLOCK_BYTES // (n * d * x.element_size()))
    found = []
    for first in range(0, len(x), size):
        part = slice(first, first + size)
        begin = None if known is None else Linear(known.weights[part], known.intercept[part])
        data = _Data.of(x[part], targets[part], n_classes, 1 / c, None if axes is None else axes.to(dtype))
        found.append(data.classifier(_minimise(_State.begin(data, begin), tol, max_iter)))
    weights, intercept = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Linear(weights.reshape(*batch, n_classes, d), intercept.reshape(*batch, n_classes))


def _require_fit(features: Tensor, labels: Tensor, n_classes: int) -> None:
    if labels.shape[-1:] != features.shape[-2:-1]:
        raise ValueError(f"features {[*features.shape]} and labels {[*labels.shape]} differ in the number of samples")
    if n_classes < 2 or labels.numel() == 0 or int(labels.min()) < 0 or int(labels.max()) >= n_classes:
        raise ValueError(f"labels must lie in 0 .. {n_classes - 1}, and there must be two classes or more")


@dataclass
class _Data:
    """A batch of problems. The first dimension of every tensor is the problem.

    Parameters are [p, c, k + 1], the last column the intercept of centred features: the intercept is free, so these
    give the same classifier, and they are far better conditioned. No centred copy is made.
    """

    x: Tensor  # [p, n, k]
    targets: Tensor  # [p, n]
    penalty: float  # of the mean objective
    centre: Tensor  # [p, 1, k]
    sizes: Tensor  # [p, c, 1]: which part of the samples a class has
    means: Tensor  # [p, c, k]: of classes, centred, times the root of their sizes
    spread: Tensor  # [p or 1, 1, k]: the variance within classes along each direction
    turn: Tensor | None  # [p or 1, d, k]: x are features times it

    @classmethod
    def of(cls, x: Tensor, targets: Tensor, n_classes: int, penalty: float, axes: Axes | None) -> Self:
        turn = None if axes is None else axes.turn[None]
        n = x.shape[1]
        if n < x.shape[2]:  # the best weights lie in the span of the centred features: look for them there
            basis = torch.linalg.qr((x - x.mean(dim=1, keepdim=True)).mT).Q
            x, turn, axes = x @ basis, basis if turn is None else turn @ basis, None
        members = torch.zeros(len(x), n_classes, n, dtype=x.dtype).scatter_(1, targets[:, None], 1)
        sizes = members.mean(dim=-1, keepdim=True)
        sums = members @ x / n
        centre = sums.sum(dim=1, keepdim=True)
        if not centre.isfinite().all():
            raise ValueError("features must be finite numbers")
        means = torch.where(sizes > 0, sums - sizes * centre, 0.0) / sizes.clamp_min(1 / n).sqrt()
        if axes is None:
            total = x.square().mean(dim=1, keepdim=True) - centre.square()
            spread = (total - means.square().sum(dim=1, keepdim=True)).clamp_min(0)
        else:
            spread = axes.spread[None, None]
        return cls(x, targets, penalty / n, centre, sizes, means, spread, turn)

    def theta(self, start: Linear) -> Tensor:
        """The parameters of a classifier for features as they were."""
        inside = start.weights if self.turn is None else start.weights @ self.turn
        offset = start.intercept[..., None] + inside @ self.centre.mT
        return torch.cat([inside, offset], dim=-1)

    def classifier(self, theta: Tensor) -> Linear:
        """The classifier for features as they were."""
        inside = theta[..., :-1]
        intercept = theta[..., -1] - (inside @ self.centre.mT).squeeze(-1)
        return Linear(inside if self.turn is None else inside @ self.turn.mT, intercept)

    def logits(self, theta: Tensor) -> Tensor:
        """[p, c, n]: products with features are faster than with samples first."""
        inside = theta[..., :-1].contiguous()
        return torch.baddbmm(theta[..., -1:] - inside @ self.centre.mT, inside, self.x.mT)

    def gradient(self, theta: Tensor, share: Tensor) -> Tensor:
        error = share.scatter_add(1, self.targets[:, None], share.new_full((1, 1, 1), -1.0).expand_as(share[:, :1]))
        offset = error.mean(dim=-1, keepdim=True)
        inside = (error @ self.x) / self.x.shape[1] - offset * self.centre + self.penalty * theta[..., :-1]
        return torch.cat([inside, offset], dim=-1)

    def steepest(self, gradient: Tensor) -> Tensor:
        """The largest entry of each problem's gradient with respect to weights for features as they were, [p]."""
        inside = gradient[..., :-1] if self.turn is None else gradient[..., :-1] @ self.turn.mT
        return torch.maximum(inside.abs().amax(dim=(1, 2)), gradient[..., -1].abs().amax(dim=1))

    def newton(self, share: Tensor, vectors: Tensor) -> Tensor:
        """[*, p, c, k + 1] times the inverse of our guess of the second derivative where classes have these shares."""
        undecided = (1 - _dot(share, share) / share.shape[2]) / share.shape[1]
        undecided = undecided.clamp_min(torch.finfo(share.dtype).eps)[:, None, None]
        diagonal = (undecided * self.spread + self.penalty).reciprocal()
        scaled = self.means * diagonal
        inner = scaled @ self.means.mT
        inner.diagonal(dim1=-2, dim2=-1).add_(1 / undecided[..., 0])
        inside = vectors[..., :-1]
        # Woodbury: the class means add as many dimensions as there are classes.
        correction = torch.cholesky_solve(scaled @ inside.mT, torch.linalg.cholesky_ex(inner).L).mT @ scaled
        return torch.cat([inside * diagonal - correction, vectors[..., -1:] / undecided], dim=-1)

    def part(self, rows: Tensor) -> "_Data":
        turn = self.turn if self.turn is None or len(self.turn) == 1 else self.turn[rows]
        spread = self.spread if len(self.spread) == 1 else self.spread[rows]
        kept = {name: getattr(self, name)[rows] for name in ("x", "targets", "centre", "sizes", "means")}
        return _Data(penalty=self.penalty, spread=spread, turn=turn, **kept)


@dataclass
class _State:
    """Where a batch of problems stands."""

    data: _Data
    theta: Tensor  # [p, c, k + 1]
    logits: Tensor  # [p, c, n]
    share: Tensor  # [p, c, n]: probabilities of the classes
    loss: Tensor  # [p]: the mean of the samples'
    size: Tensor  # [p]: the penalty
    gradient: Tensor  # [p, c, k + 1]
    steps: Tensor  # [p, m, c * (k + 1)], scaled so that the product of a step and its change is 1
    changes: Tensor  # [p, m, c * (k + 1)], of the gradient

    @classmethod
    def begin(cls, data: _Data, start: Linear | None) -> Self:
        p, n, k = data.x.shape
        c = data.sizes.shape[1]
        none = data.x.new_empty(p, 0, c * (k + 1))
        if start is not None:
            theta = data.theta(start)
            logits = data.logits(theta)
            loss, share = _loss(logits, data.targets)
            size = data.penalty / 2 * _dot(theta[..., :-1], theta[..., :-1])
            return cls(data, theta, logits, share, loss, size, data.gradient(theta, share), none, none)
        # At zero all classes have the same share, so that the gradient is known without any product.
        zero = data.x.new_zeros(p)
        gradient = torch.cat([-data.means * data.sizes.sqrt(), 1 / c - data.sizes], dim=-1)
        logits = data.x.new_zeros(p, c, n)
        return cls(
            data, torch.zeros_like(gradient), logits, logits + 1 / c, zero + math.log(c), zero, gradient, none, none
        )

    def keep(self, rows: Tensor) -> None:
        """Drop all problems but these."""
        self.data = self.data.part(rows)
        for name in ("theta", "logits", "share", "loss", "size", "gradient", "steps", "changes"):
            setattr(self, name, getattr(self, name)[rows])


def _minimise(state: _State, tol: float, max_iter: int) -> Tensor:
    """The best parameters of every problem; one that has converged leaves the batch."""
    count = len(state.theta)
    found = state.theta.clone()
    places = torch.arange(count)
    open_ = torch.ones(count, dtype=torch.bool)
    for iteration in range(max_iter + 1):
        mean_square = _dot(state.gradient, state.gradient) / state.gradient[0].numel()
        if (mean_square <= tol**2).any():  # elsewhere some entry is larger, or nearly so
            done = open_ & (state.data.steepest(state.gradient) <= tol)
            found[places[done]] = state.theta[done]
            open_ = open_ & ~done
            if not open_.any():
                return found
            if open_.sum() <= len(open_) / 2:  # dropping problems copies the others: not for each one
                state.keep(open_)
                places, open_ = places[open_], open_[open_]
        if iteration < max_iter:
            _step(state)
    steepest = state.data.steepest(state.gradient)
    raise FscilError(
        f"logistic regression: {int(open_.sum())} of {count} problems have not converged after {max_iter} "
        f"iterations (gradient {float(steepest[open_].max()):.1e}, wanted {tol:.1e}): loosen tol, or lower c"
    )


def _step(state: _State) -> None:
    """One iteration of L-BFGS."""
    direction = _direction(state)
    slope = _dot(state.gradient, direction)
    uphill = slope >= 0  # by rounding alone: the objective is convex
    if uphill.any():
        direction = torch.where(uphill[:, None, None], -state.gradient, direction)
        slope = _dot(state.gradient, direction)
    length = _search(state, direction, slope)
    step = length[:, None, None] * direction
    theta = state.theta + step
    gradient = state.data.gradient(theta, state.share)
    change = gradient - state.gradient
    bend = _dot(step, change)
    scale = torch.where(bend > 0, bend.rsqrt(), 0.0)[:, None]  # a step without curvature tells nothing
    state.steps = torch.cat([state.steps[:, -MEMORY + 1 :], (step.flatten(1) * scale)[:, None]], dim=1)
    state.changes = torch.cat([state.changes[:, -MEMORY + 1 :], (change.flatten(1) * scale)[:, None]], dim=1)
    state.theta, state.gradient = theta, gradient


def _search(state: _State, direction: Tensor, slope: Tensor) -> Tensor:
    """A step length for every problem that meets Wolfe's conditions; logits, shares and values move there.

    Logits are linear in the length, so trying one costs no product with the features.
    """
    data = state.data
    n = data.x.shape[1]
    along = data.logits(direction)
    along_target = along.gather(1, data.targets[:, None]).sum(dim=(1, 2)) / n
    inside = direction[..., :-1]
    rise = _dot(state.theta[..., :-1], inside) * data.penalty
    bend = _dot(inside, inside) * data.penalty
    old = state.loss + state.size
    slack = 10 * torch.finfo(slope.dtype).eps * old  # what rounding may do to the value
    length = torch.ones_like(slope)
    low, high = torch.zeros_like(slope), torch.full_like(slope, torch.inf)
    for _ in range(LINE_SEARCH):
        tried = length
        logits = torch.addcmul(state.logits, along, length[:, None, None])
        loss, share = _loss(logits, data.targets)
        size = state.size + length * rise + length.square() / 2 * bend
        here = _dot(share, along) / n - along_target + rise + length * bend
        falls = loss + size <= old + ARMIJO * length * slope + slack
        good = falls & (here.abs() <= WOLFE * slope.abs())
        if good.all():
            break
        too_far = ~falls | (here > 0)
        high = torch.where(~good & too_far, length, high)
        low = torch.where(~good & ~too_far, length, low)
        other = torch.where(high.isinf(), 2 * length, (low + high) / 2)
        length = torch.where(good, length, other)
    state.logits, state.share, state.loss, state.size = logits, share, loss, size
    return tried


def _direction(state: _State) -> Tensor:
    """Minus the gradient, times L-BFGS's estimate of the inverse second derivative.

    The two loops of L-BFGS, from the newest pair to the oldest and back, are the solutions of two triangular systems.
    """
    gradient, newton = state.gradient, state.data.newton
    if not state.steps.shape[1]:
        return -newton(state.share, gradient)
    steps, changes = state.steps, state.changes
    flat = gradient.flatten(1)[..., None]
    upper = steps @ changes.mT
    past = torch.linalg.solve_triangular(upper, steps @ flat, upper=True, unitriangular=True)
    rest = (flat - changes.mT @ past).reshape_as(gradient)
    newest = changes[:, -1].reshape_as(gradient)
    rest, along = newton(state.share, torch.stack([rest, newest]))
    size = _dot(newest, along)
    result = (rest / torch.where(size > 0, size, 1.0)[:, None, None]).flatten(1)[..., None]
    weight = torch.linalg.solve_triangular(upper.mT, past - changes @ result, upper=False, unitriangular=True)
    found: Tensor = -(result + steps.mT @ weight)
    return found.reshape_as(gradient)


def _loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The mean log-loss of each problem, [p], and the probabilities of the classes, [p, c, n]."""
    logs = logits.log_softmax(dim=1)
    return -logs.gather(1, targets[:, None]).sum(dim=(1, 2)) / logits.shape[-1], logs.exp_()


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each problem's entries, [p]."""
    return (a * b).sum(dim=tuple(range(1, a.ndim)))
