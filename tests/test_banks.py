"""Banks: what is stored comes back; what is damaged is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fscil_bench.backbones.store import bank_name, find_backbone, open_backbone
from fscil_bench.banks import Bank, decode, encode, open_bank, write_bank
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import read_json, sha256_file, write_json


def test_round_trip(toy_backbone, toy_bank):
    expected = toy_bank()
    got = open_bank(find_backbone(str(toy_backbone())), "cifar100")
    assert torch.equal(got.features, expected.features)
    assert got.ids == expected.ids
    assert got.classes == expected.classes
    np.testing.assert_array_equal(got.labels, expected.labels)
    np.testing.assert_array_equal(got.is_test, expected.is_test)
    assert torch.equal(got.head["weight"], expected.head["weight"])


def test_a_flipped_bit_is_noticed(toy_backbone, flip_bit):
    folder = toy_backbone()
    flip_bit(folder / bank_name("cifar100"))
    with pytest.raises(FscilError, match="damaged"):
        open_bank(open_backbone(folder), "cifar100")


def test_a_truncated_bank_is_noticed(toy_backbone):
    folder = toy_backbone()
    path = folder / bank_name("cifar100")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FscilError, match="damaged"):
        open_bank(open_backbone(folder), "cifar100")


def test_a_missing_bank_is_named(toy_backbone):
    folder = toy_backbone()
    (folder / bank_name("cifar100")).unlink()
    with pytest.raises(FscilError, match="is missing"):
        open_bank(open_backbone(folder), "cifar100")
    with pytest.raises(UsageError, match="has no bank-cub200"):
        open_bank(open_backbone(folder), "cub200")


def test_a_file_that_is_no_bank_is_named(toy_backbone):
    folder = toy_backbone()
    path = folder / bank_name("cifar100")
    path.write_bytes(b"something else")
    card = read_json(folder / "card.json", "card")
    write_json(folder / "card.json", {**card, "files": {path.name: sha256_file(path)}})
    with pytest.raises(FscilError, match="not a feature bank"):
        open_bank(open_backbone(folder), "cifar100")


def test_damaged_cards_are_named(toy_backbone):
    folder = toy_backbone()
    (folder / "card.json").write_text("{")
    with pytest.raises(FscilError, match=r"backbone card .* is damaged"):
        open_backbone(folder)
    (folder / "card.json").write_text('{"schema": "other/1"}')
    with pytest.raises(FscilError, match="not a backbone card"):
        open_backbone(folder)


def test_unknown_backbones_are_named():
    with pytest.raises(UsageError, match="unknown backbone 'cifar100-resnet20-shrt'"):
        find_backbone("cifar100-resnet20-shrt")


def within_half_a_step(features: torch.Tensor, storage: str) -> bool:
    """Signed roots come back within half a step, but for what float32 itself loses of them."""

    def roots(values: torch.Tensor) -> torch.Tensor:
        return values.double().abs().sqrt() * values.sign()

    stored = encode(features, storage)
    error = (roots(decode(stored)) - roots(features)).abs()
    lost = 4 * torch.finfo(torch.float32).eps * roots(features).abs().amax(dim=0)
    return bool((error <= stored["features.step"].double() / 2 + lost).all())


@pytest.mark.parametrize("storage", ["int8", "int8:127", "int16:1023", "int16:65535"])
def test_roots_are_kept_within_half_a_step(toy_bank, storage):
    features = toy_bank().features.float() ** 3
    assert within_half_a_step(features, storage)
    assert within_half_a_step(features - features.mean(dim=0), storage)


@given(
    arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=20), elements=st.floats(-1e4, 1e4, width=32)),
    st.one_of(st.integers(1, 255).map("int8:{}".format), st.integers(1, 65535).map("int16:{}".format)),
)
def test_any_features_are_kept_within_half_a_step(features, storage):
    assert within_half_a_step(torch.from_numpy(features), storage)


@pytest.mark.parametrize("storage", ["int8", "int16:255", "int16:4095"])
def test_zero_sign_and_constant_dimensions_are_kept(storage):
    features = torch.tensor(
        [[0.0, -4.0, 2.0, -2.0], [1.0, 9.0, 2.0, -2.0], [4.0, 0.0, 2.0, -2.0], [0.0, 1.0, 2.0, -2.0]]
    )
    got = decode(encode(features, storage))
    assert (got[[0, 3], 0] == 0).all()
    torch.testing.assert_close(got, features, atol=0.12, rtol=0.01)
    assert torch.equal(decode(encode(torch.zeros(3, 2), storage)), torch.zeros(3, 2))


def test_int16_keeps_what_int8_keeps(toy_bank):
    features = toy_bank().features.float()
    assert torch.equal(decode(encode(features, "int16:191")), decode(encode(features, "int8:191")))


NOT_THERE = ["int4", "int8:", "int8:0", "int8:256", "int16", "int16:", "int16:0", "int16:65536", "int16:1e3", "f8"]


@pytest.mark.parametrize("storage", NOT_THERE)
def test_unknown_storage_is_refused(storage):
    with pytest.raises(UsageError, match="int16:STEPS, int8, int8:STEPS"):
        encode(torch.zeros(1, 1), storage)


def store(folder: Path, tensors: dict[str, torch.Tensor] | None = None, storage: str = "int16:4095") -> Bank:
    """The toy bank of a backbone stored anew, then some of its tensors changed; opened again."""
    path = folder / bank_name("cifar100")
    write_bank(path, open_bank(open_backbone(folder), "cifar100"), storage)
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    save_file({**load_file(path), **(tensors or {})}, path, about)
    card = read_json(folder / "card.json", "card")
    write_json(folder / "card.json", {**card, "files": {path.name: sha256_file(path)}})
    return open_bank(open_backbone(folder), "cifar100")


@pytest.mark.parametrize("storage", ["f16", "f32", "int8", "int8:127", "int16:127", "int16:4095", "int16:65535"])
def test_every_storage_comes_back(toy_backbone, toy_bank, storage):
    got = store(toy_backbone(), storage=storage).features
    torch.testing.assert_close(got.float(), toy_bank().features.float(), atol=0.02, rtol=0)


@pytest.mark.parametrize("stream", ["layout", "nonzero", "upper", "lower"])
def test_damaged_streams_are_named(toy_backbone, stream):
    folder = toy_backbone()
    with pytest.raises(FscilError, match=r"bank-cifar100.safetensors is not a feature bank \(.+\): make it anew"):
        store(folder, {f"features.packed.{stream}": torch.zeros(3, dtype=torch.uint8)})
