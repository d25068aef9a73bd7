"""Pretrained weights: taken where they fit, refused by name where they do not, and never run."""

import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from fscil_bench.backbones.networks import make_network
from fscil_bench.backbones.pretraining import overlap
from fscil_bench.backbones.recipes import load_recipe
from fscil_bench.backbones.weights import convert, fit_to_network, initial_weights, read_weights, rounded
from fscil_bench.errors import FscilError, UsageError

NETWORK = "timm:test_efficientnet"


@pytest.fixture
def weights():
    torch.manual_seed(0)
    return {name: torch.randn_like(value) for name, value in make_network("resnet8").state_dict().items() if value.ndim}


class Runs:
    """A pickle that leaves a mark if it is run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("prefix", ["", "network.", "module.network."])
@pytest.mark.parametrize("kind", ["safetensors", "pth", "wrapped"])
def test_weights_come_back_as_saved(tmp_path, weights, prefix, kind):
    named = {prefix + name: value for name, value in weights.items()}
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "safetensors":
        save_file(named, path)
    else:
        torch.save({"state_dict": named, "epoch": 3} if kind == "wrapped" else named, path)
    fitted = fit_to_network(read_weights(path), "resnet8", str(path))
    assert all(torch.equal(fitted[name], value) for name, value in weights.items())
    make_network("resnet8").load_state_dict(fitted)


def test_a_classifier_may_be_left_over(weights):
    assert "fc.weight" not in fit_to_network({**weights, "fc.weight": torch.zeros(10, 64)}, "resnet8", "x")


def test_another_architecture_is_refused(weights):
    with pytest.raises(UsageError, match=r"x is of another architecture than resnet14: it lacks stage1.1.conv1.weight"):
        fit_to_network(weights, "resnet14", "x")
    with pytest.raises(UsageError, match=r"it has extra.weight"):
        fit_to_network({**weights, "extra.weight": torch.zeros(1)}, "resnet8", "x")


def test_another_shape_is_refused(weights):
    with pytest.raises(UsageError, match=r"stem.0.weight has shape \[16, 1, 3, 3\], expected \[16, 3, 3, 3\]"):
        fit_to_network({**weights, "stem.0.weight": torch.zeros(16, 1, 3, 3)}, "resnet8", "x")


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "bad.pth").write_bytes(pickle.dumps({"weight": Runs(mark)}))
    torch.save({"weight": Runs(mark)}, tmp_path / "bad.pt")
    for path in (tmp_path / "bad.pth", tmp_path / "bad.pt"):
        with pytest.raises(UsageError, match="code in it, which is never run"):
            read_weights(path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_what_is_no_weights_file_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match=str(path)):
        read_weights(path)


def test_a_file_without_a_state_dict_is_refused(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / "w.pth")
    with pytest.raises(UsageError, match="holds no state_dict"):
        read_weights(tmp_path / "w.pth")


def test_converting_renames_in_order(tmp_path):
    network = make_network(NETWORK)
    torch.manual_seed(1)
    own = {k: torch.randn_like(v) for k, v in network.state_dict().items() if v.ndim}
    other = {f"layer{i}": value for i, value in enumerate(own.values())}
    torch.save({**other, "fc.weight": torch.zeros(5, 256)}, tmp_path / "other.pth")
    assert convert(tmp_path / "other.pth", NETWORK, tmp_path / "own.safetensors") == len(own)
    converted = load_file(tmp_path / "own.safetensors")
    assert converted.keys() == own.keys()
    assert all(torch.equal(converted[name], value) for name, value in own.items())
    network.load_state_dict(fit_to_network(converted, NETWORK, "x"))


def test_converting_what_does_not_fit(tmp_path, cli):
    torch.save({"a": torch.zeros(3), "b": torch.zeros(2)}, tmp_path / "other.pth")
    out = tmp_path / "own.safetensors"
    done = cli("backbone", "convert", tmp_path / "other.pth", "--network", NETWORK, "--out", out)
    assert done.code == 2
    assert "has 2 tensors" in done.error_line
    own = make_network(NETWORK).state_dict()
    shapes = {f"layer{i}": value for i, value in enumerate(value for value in own.values() if value.ndim)}
    torch.save({**shapes, "layer3": torch.zeros(7, 7)}, tmp_path / "other.pth")
    done = cli("backbone", "convert", tmp_path / "other.pth", "--network", NETWORK, "--out", out)
    assert (done.code, out.exists()) == (2, False)
    assert "layer3 as " in done.error_line
    assert cli("backbone", "convert", tmp_path / "none", "--network", NETWORK, "--out", out).code == 2
    assert cli("backbone", "convert", tmp_path / "other.pth", "--network", NETWORK, "--out", tmp_path / "x").code == 2


def test_rounding_leaves_vectors_alone(weights):
    half = rounded(weights, "f16")
    assert half["stem.0.weight"].dtype == torch.float16
    assert half["stem.1.weight"].dtype == torch.float32


def test_a_recipe_that_needs_a_file_says_so():
    with pytest.raises(UsageError, match=r"--weights FILE \(docs/backbones.md"):
        initial_weights(load_recipe("short", "cub200"), None)


def test_a_failed_download_says_what_to_do(monkeypatch):
    from torchvision.models import ResNet18_Weights

    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", offline)
    with pytest.raises(FscilError, match=r"no network\): .* --weights FILE"):
        initial_weights(load_recipe("teen", "cub200"), None)


def test_downloaded_weights_lose_their_classifier(monkeypatch):
    from torchvision.models import ResNet18_Weights, resnet18

    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", lambda *_, **__: resnet18().state_dict())
    fitted = initial_weights(load_recipe("cec", "cub200"), None)
    assert fitted.keys() == make_network("resnet18").state_dict().keys()


def test_what_pretraining_has_seen():
    assert overlap("none", "cub200") == {"kind": "none", "new_classes": []}
    assert overlap("imagenet1k", "cub200")["kind"] == "images"
    assert overlap("unknown", "cub200")["kind"] == "unknown"
    assert len(overlap("imagenet1k", "miniimagenet")["new_classes"]) == 40
