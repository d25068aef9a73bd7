"""Pretrained weights: read from a file without running what is in it, and fitted to a network or refused."""

import pickle
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fscil_bench.backbones.networks import TIMM, make_network
from fscil_bench.backbones.recipes import NO_WEIGHTS, Recipe
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import sha256_file, write_atomically

LIBRARY = "imagenet"  # the ImageNet weights that torchvision or timm downloads
FROM_FILE = "sha256:"
CLASSIFIERS = ("fc.", "classifier.", "head.", "_fc.")  # what may be left over: another task's output layer
COUNTERS = "num_batches_tracked"  # of batch norms: no part of what a network computes

Weights = dict[str, Tensor]


def weights_name(path: Path) -> str:
    """How a recipe names the weights in a file."""
    if not path.is_file():
        raise UsageError(f"no weights at {path}: pass --weights FILE with a .safetensors or PyTorch file")
    return FROM_FILE + sha256_file(path)


def initial_weights(recipe: Recipe, file: Path | None) -> Weights | None:
    """The weights that a recipe's network starts from; None for a random start."""
    if file is not None:
        return fit_to_network(read_weights(file), recipe.network, str(file))
    if recipe.weights == NO_WEIGHTS:
        return None
    if recipe.weights == LIBRARY:
        return fit_to_network(_download(recipe.network), recipe.network, "the downloaded weights")
    raise UsageError(
        f"recipe {recipe.name} of {recipe.dataset} starts from the weights {recipe.weights[:19]}...: pass them with "
        "--weights FILE (docs/backbones.md says how they are made)"
    )


def read_weights(path: Path) -> Weights:
    """Tensors by name, from a safetensors file or from a PyTorch file that holds nothing but tensors."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{path} is not a plain file of tensors (it is damaged, or a pickle with code in it, which is never run): "
            "save the network's state_dict() alone, best as .safetensors"
        ) from error
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
        raise UsageError(f"cannot read weights from {path} ({error}): pass a .safetensors or PyTorch file") from error
    for key in ("state_dict", "model"):  # where training scripts put them
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not found or not all(isinstance(v, Tensor) for v in found.values()):
        raise UsageError(f"{path} holds no state_dict (names with tensors): save the network's state_dict() alone")
    return dict(found)


def fit_to_network(weights: Weights, network: str, source: str) -> Weights:
    """The weights under the network's own names; anything missing, left over or of another shape is refused."""
    target = make_network(network).state_dict()
    by_name = {_plain_name(name): tensor for name, tensor in weights.items()}
    missing = [name for name in target if _plain_name(name) not in by_name and COUNTERS not in name]
    names = {_plain_name(name) for name in target}
    surplus = [name for name in by_name if name not in names and not name.startswith(CLASSIFIERS)]
    if missing or surplus:
        raise UsageError(
            f"{source} is of another architecture than {network}: {_some('it lacks', missing)}"
            f"{' and ' if missing and surplus else ''}{_some('it has', surplus)}"
        )
    fitted = {name: by_name.get(_plain_name(name), own) for name, own in target.items()}
    for name, tensor in fitted.items():
        _require_shape(name, tensor, target[name], f"{source} does not fit {network}")
    return {name: tensor.to(target[name].dtype).clone() for name, tensor in fitted.items()}


def convert(source: Path, network: str, out: Path) -> int:
    """Rename the tensors of `source` to those of `network`, one after another in their order; returns how many.

    For files of another implementation of the same network. Every shape must agree, one by one, and only an output
    layer may be left over. Whether the result computes the same is for the caller to see.
    """
    if not source.is_file():
        raise UsageError(f"no weights at {source}: pass the file to convert")
    target = {k: v for k, v in make_network(network).state_dict().items() if COUNTERS not in k}
    given = {k: v for k, v in read_weights(source).items() if COUNTERS not in k}
    left_over = list(given)[len(target) :]
    if len(given) < len(target) or not all(name.startswith(CLASSIFIERS) for name in left_over):
        raise UsageError(f"{source} has {len(given)} tensors, {network} {len(target)} without an output layer")
    for (name, tensor), (own, wanted) in zip(given.items(), target.items(), strict=False):
        _require_shape(f"{name} as {own}", tensor, wanted, f"{source} does not fit {network} in order")
    renamed = {own: tensor.contiguous() for own, tensor in zip(target, given.values(), strict=False)}
    write_atomically(out, lambda temporary: save_file(renamed, temporary))
    return len(renamed)


def rounded(weights: Mapping[str, Tensor], storage: Literal["f32", "f16"]) -> Weights:
    """Kernels and matrices in the type of `storage`; norms and other vectors stay as they are."""
    kind = {"f32": torch.float32, "f16": torch.float16}[storage]
    return {k: v.to(kind) if v.ndim > 1 and v.is_floating_point() else v for k, v in weights.items()}


def _plain_name(name: str) -> str:
    """A tensor's name without the wrappers that we or training scripts put around a network."""
    for prefix in ("module.", "network.", "body."):
        name = name.removeprefix(prefix)
    return name


def _require_shape(name: str, tensor: Tensor, wanted: Tensor, problem: str) -> None:
    if tensor.shape != wanted.shape:
        raise UsageError(f"{problem}: {name} has shape {[*tensor.shape]}, expected {[*wanted.shape]}")


def _some(what: str, names: list[str]) -> str:
    if not names:
        return ""
    return f"{what} {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _download(network: str) -> Weights:
    try:
        if network.startswith(TIMM):
            import timm

            found: Any = timm.create_model(network.removeprefix(TIMM), pretrained=True, num_classes=0).state_dict()
        elif network == "resnet18":
            from torchvision.models import ResNet18_Weights

            found = ResNet18_Weights.IMAGENET1K_V1.get_state_dict(progress=True, check_hash=True)
        else:
            raise UsageError(f"there are no ImageNet weights of {network} to download: pass --weights FILE")
        return dict(found)
    except (urllib.error.URLError, OSError, RuntimeError) as error:
        raise FscilError(
            f"cannot download ImageNet weights of {network} ({error}): get them by other means and pass --weights FILE"
        ) from error
