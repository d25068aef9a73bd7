"""Base training: the resident image tensor, one pass an epoch, a checkpoint after each.

Everything random is drawn from (seed, epoch), so a state is weights, momentum and an epoch number: a killed training
goes on from its last checkpoint and, with as many threads and processes, ends with the same weights to the bit.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fscil_bench.backbones.augment import Frame, make_pipeline
from fscil_bench.backbones.dice import Dice
from fscil_bench.backbones.machine import Machine
from fscil_bench.backbones.networks import CosineClassifier, require_network
from fscil_bench.backbones.objectives import Mixing, build_objective
from fscil_bench.backbones.recipes import FACT, Recipe
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import sha256_json, write_atomically
from fscil_bench.progress import progress

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Selection = Literal["last", "val", "test"]
EVAL_BATCH = 500
TELL_EVERY = 10  # steps
DETAIL = "loss {task.fields[loss]:.3f}  acc {task.fields[acc]:.1f}  {task.fields[speed]:.0f} images/s"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What decides the weights, the machine aside."""

    recipe: Recipe
    n_classes: int
    n_virtual: int = 0  # classes to come, for objectives that keep room for them
    seed: int = 1
    select: Selection = "last"
    val_per_class: int = 50  # held out of training when select is "val"

    def as_data(self) -> dict[str, Any]:
        held_out = self.val_per_class if self.select == "val" else 0
        recipe = {key: value for key, value in self.recipe.as_data().items() if key != "source"}
        virtual = {"n_virtual": self.n_virtual} if self.n_virtual else {}
        return {
            "recipe": recipe,
            "n_classes": self.n_classes,
            **virtual,
            "seed": self.seed,
            "select": self.select,
            "val_per_class": held_out,
        }

    def checksum(self) -> str:
        return sha256_json(self.as_data())


@dataclass(frozen=True)
class Images:
    """Labelled pixels: uint8 [n, 3, h, w], class numbers [n], and the width / height [n] that the pictures had."""

    pixels: Tensor
    labels: Tensor
    aspect: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Images":
        return Images(self.pixels.to(device), self.labels.to(device), self.aspect.to(device))

    def take(self, rows: Tensor) -> "Images":
        return Images(self.pixels[rows], self.labels[rows], self.aspect[rows])


@dataclass(frozen=True)
class Trained:
    """The weights that a training selected, and how it went."""

    weights: dict[str, Tensor]
    epoch: int  # the selected one, counted from 1
    curve: list[dict[str, float]]


class Normalise:
    """uint8 pixels to the network's float input."""

    def __init__(
        self,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        device: torch.device,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        spread = torch.tensor(std, device=device)[:, None, None]
        self.factor = 1 / (255 * spread)
        self.layout = layout
        self.offset = -torch.tensor(mean, device=device)[:, None, None] / spread

    def __call__(self, pixels: Tensor) -> Tensor:
        return pixels.float().mul_(self.factor).add_(self.offset).contiguous(memory_format=self.layout)


def train(
    plan: Plan,
    training: Images,
    held_out: Images | None,
    machine: Machine,
    folder: Path,
    initial: dict[str, Tensor] | None = None,
) -> Trained:
    """Train by `plan`, with checkpoints in `folder`; goes on where an earlier call was cut off.

    `held_out` are the images that select the epoch: none for "last", else training images set aside ("val") or, which
    leaks, the base classes' test images ("test"). `initial` are the network's pretrained weights, if the recipe starts
    from some.
    """
    if (held_out is None) != (plan.select == "last"):
        raise ValueError("held-out images are needed for, and only for, selection by them")
    if plan.recipe.has_virtual_classes != (plan.n_virtual > 0):
        raise ValueError(f"virtual classes are needed for, and only for, the objective {FACT}")
    require_network(plan.recipe.network)  # unknown names are refused before the start
    make_pipeline(plan.recipe.augment)
    if initial is not None and plan.recipe.epochs == 0:
        return Trained({f"network.{key}": value for key, value in initial.items()}, 0, [])
    fabric = machine.fabric()
    state = folder / "state.safetensors"
    _read_state(state, plan)  # so is a damaged or foreign state
    job = partial(
        _train, plan=plan, training=training, held_out=held_out, machine=machine, initial=initial, state_file=state
    )
    fabric.launch(job)  # as one object: Fabric would take its arguments apart
    done = _read_state(state, plan)
    assert done is not None
    prefix = "model." if plan.select == "last" else "best."
    return Trained(done.part(prefix), done.selected(plan), done.curve)


def _train(
    fabric: "Fabric",
    plan: Plan,
    training: Images,
    held_out: Images | None,
    machine: Machine,
    initial: dict[str, Tensor] | None,
    state_file: Path,
) -> None:
    """The training itself, in every process."""
    if machine.threads is not None:
        torch.set_num_threads(machine.threads)
    torch.backends.cudnn.deterministic = True
    recipe = plan.recipe
    objective = build_objective(recipe, plan.n_classes, plan.n_virtual, plan.seed)
    if initial is not None:
        objective.classifier.network.load_state_dict(initial)
    objective = objective.to(memory_format=machine.memory_format)
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        objective = nn.SyncBatchNorm.convert_sync_batchnorm(objective)
    classifier = objective.classifier
    optimizer = torch.optim.SGD(
        [
            {"params": [*classifier.network.parameters()], "rate": 1.0},
            {"params": [*classifier.head.parameters()], "rate": recipe.head_rate},
        ],
        lr=recipe.lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )
    state = _read_state(state_file, plan) or State({}, 0, [])
    if state.epoch:
        classifier.load_state_dict(state.part("model."))
    model, wrapped = fabric.setup(objective, optimizer)
    _load_momentum(classifier, optimizer, state.part("momentum."))
    training = training.to(fabric.device)
    held_out = held_out.to(fabric.device) if held_out is not None else None
    normalise = Normalise(recipe.mean, recipe.std, fabric.device, machine.memory_format)
    with progress(DETAIL, enabled=fabric.is_global_zero) as bar:
        task = bar.add_task(plan.recipe.name, total=recipe.epochs, completed=state.epoch, loss=0.0, acc=0.0, speed=0.0)
        if state.epoch and fabric.is_global_zero:
            bar.console.print(f"resuming after epoch {state.epoch} of {recipe.epochs}")

        def tell(epochs: float, loss: float, right: float, speed: float) -> None:
            bar.update(task, completed=epochs, loss=loss, acc=100 * right, speed=speed)

        for epoch in range(state.epoch, recipe.epochs):
            row = _train_epoch(fabric, model, wrapped, plan, training, normalise, epoch, tell)
            if not math.isfinite(row["loss"]):
                raise FscilError(f"the training diverged in epoch {epoch + 1} (loss {row['loss']}): lower lr")
            if held_out is not None:
                row[f"{plan.select}_acc"] = _accuracy(classifier, held_out, normalise)
            if fabric.is_global_zero:
                state = state.after(row, classifier, optimizer, plan)
                state.write(state_file, plan)
                bar.console.print("  ".join(f"{key} {value:.6g}" for key, value in row.items()))
            fabric.barrier()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # a process that exits with it open may abort


def _train_epoch(
    fabric: "Fabric",
    model: nn.Module,
    optimizer: Any,
    plan: Plan,
    images: Images,
    normalise: Normalise,
    epoch: int,
    tell: Callable[[float, float, float, float], None],
) -> dict[str, float]:
    """One pass over the training images; the curve's row for it. `tell` hears of epochs done, loss, accuracy, speed."""
    recipe = plan.recipe
    generator = _generator(plan.seed, epoch)
    chance = np.random.default_rng(_stream(plan.seed, epoch, 1))  # of its own: images are cut alike for all objectives
    augment = make_pipeline(recipe.augment)
    order = torch.randperm(len(images), generator=generator)
    # A last batch with fewer images than processes would leave some without any: it is dropped.
    batches = [b for b in order.split(recipe.batch_size) if len(b) >= fabric.world_size]
    share = slice(fabric.global_rank, None, fabric.world_size)
    totals = torch.zeros(4, device=fabric.device, dtype=torch.float64)  # loss, its part by cross-entropy, right, images
    model.train()
    started = time.perf_counter()
    for step, rows in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = group["rate"] * recipe.lr_at(epoch, step, len(batches))
        mine = images.take(rows[share].to(fabric.device))
        inputs = normalise(
            augment(mine.pixels, Dice(generator, len(rows), share), Frame(recipe.size_at(epoch), mine.aspect))
        )
        mixing = Mixing.drawn(chance, recipe.mix_alpha, len(rows), share) if recipe.mixes_at(epoch) else None
        losses = model(inputs, mine.labels, mixing)
        optimizer.zero_grad()
        fabric.backward(losses.total * (fabric.world_size / len(rows)))  # gradients are averaged over processes
        optimizer.step()
        totals += torch.stack((losses.total.detach(), *losses[1:], torch.tensor(len(mine), device=fabric.device)))
        if step % TELL_EVERY == TELL_EVERY - 1 and fabric.is_global_zero:
            loss, _, hits, seen = totals.tolist()
            speed = seen * fabric.world_size / (time.perf_counter() - started)
            tell(epoch + (step + 1) / len(batches), loss / seen, hits / seen, speed)
    if fabric.world_size > 1:
        totals = fabric.all_reduce(totals, reduce_op="sum")  # type: ignore[assignment]
    loss, cross_entropy, hits, seen = totals.tolist()
    seconds = time.perf_counter() - started
    return {
        "epoch": epoch + 1,
        "lr": recipe.lr_at(epoch, len(batches) - 1, len(batches)),
        "loss": loss / seen,
        **({"cross_entropy": cross_entropy / seen} if recipe.objective == FACT else {}),
        "train_acc": 100 * hits / seen,
        "images_per_second": seen / seconds,
    }


@torch.no_grad()
def _accuracy(classifier: CosineClassifier, images: Images, normalise: Normalise) -> float:
    """The learned head's accuracy, in percent."""
    classifier.eval()
    right = 0
    for rows in torch.arange(len(images), device=images.labels.device).split(EVAL_BATCH):
        part = images.take(rows)
        right += int((classifier(normalise(part.pixels)).argmax(1) == part.labels).sum())
    return 100 * right / len(images)


@dataclass(frozen=True)
class State:
    """A training after some epochs. Tensors: model.*, momentum.*, and best.* unless the last epoch is selected."""

    tensors: dict[str, Tensor]
    epoch: int
    curve: list[dict[str, float]]

    def part(self, prefix: str) -> dict[str, Tensor]:
        return {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}

    def selected(self, plan: Plan) -> int:
        """The epoch whose weights count: the last, or the best on the held-out images (of equals the latest)."""
        if plan.select == "last":
            return self.epoch
        best = max(self.curve, key=lambda row: (row[f"{plan.select}_acc"], row["epoch"]))
        return int(best["epoch"])

    def after(self, row: dict[str, float], model: nn.Module, optimizer: torch.optim.SGD, plan: Plan) -> "State":
        curve = [*self.curve, row]
        plain = {"memory_format": torch.contiguous_format}  # whatever the layout in training: what files hold
        weights = {k: v.detach().cpu().clone(**plain) for k, v in model.state_dict().items()}
        tensors = {f"model.{k}": v for k, v in weights.items()}
        for name, parameter in model.named_parameters():
            buffer = optimizer.state[parameter].get("momentum_buffer")  # none without momentum
            if buffer is not None:
                tensors[f"momentum.{name}"] = buffer.detach().cpu().contiguous()
        new = State(tensors, self.epoch + 1, curve)
        if plan.select != "last":
            best = weights if new.selected(plan) == new.epoch else self.part("best.")
            tensors |= {f"best.{k}": v.clone() for k, v in best.items()}
        return new

    def write(self, path: Path, plan: Plan) -> None:
        metadata = {"plan": plan.checksum(), "epoch": str(self.epoch), "curve": json.dumps(self.curve)}
        write_atomically(path, lambda temporary: save_file(self.tensors, temporary, metadata))


def _read_state(path: Path, plan: Plan) -> State | None:
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        state = State(tensors, int(metadata["epoch"]), json.loads(metadata["curve"]))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise FscilError(f"training state {path} is damaged ({error}): start anew with --restart") from error
    if metadata["plan"] != plan.checksum():
        raise UsageError(f"{path.parent} holds a training with other settings: start anew with --restart")
    return state


def _load_momentum(model: nn.Module, optimizer: torch.optim.SGD, buffers: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in buffers:
            optimizer.state[parameter]["momentum_buffer"] = buffers[name].to(parameter.device)


def hold_out(labels: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Rows to train on, and `val_per_class` random rows of every class set aside."""
    shuffled = torch.randperm(len(labels), generator=_generator(plan.seed, -1))
    ordered = shuffled[torch.argsort(labels[shuffled], stable=True)]
    held, kept = [], []
    for rows in ordered.split(torch.bincount(labels, minlength=plan.n_classes).tolist()):
        if len(rows) <= plan.val_per_class:
            raise UsageError(
                f"class {int(labels[rows[0]])} has {len(rows)} training images: cannot hold out "
                f"--val-per-class {plan.val_per_class} of them"
            )
        held.append(rows[: plan.val_per_class])
        kept.append(rows[plan.val_per_class :])
    return torch.cat(kept), torch.cat(held)


def _generator(seed: int, epoch: int) -> torch.Generator:
    """Random numbers of every epoch (and, epoch -1, for the choice of held-out images)."""
    words = _stream(seed, epoch).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))


def _stream(seed: int, epoch: int, *more: int) -> np.random.SeedSequence:
    """An independent stream for every epoch and purpose."""
    return np.random.SeedSequence([seed, epoch + 1, *more])
