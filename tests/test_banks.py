"""Banks: what is stored comes back; what is damaged is refused."""

import numpy as np
import pytest
import torch

from fscil_bench.backbones.store import bank_name, find_backbone, open_backbone
from fscil_bench.banks import decode, encode, open_bank, write_bank
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


def test_int8_keeps_roots_within_half_a_step(toy_bank):
    features = toy_bank().features.float() ** 3
    stored = encode(features, "int8")
    assert stored["features"].dtype == torch.uint8
    error = (decode(stored).sqrt() - features.sqrt()).abs()
    assert (error <= stored["features.step"] * 0.501).all()


def test_int8_keeps_zero_sign_and_constant_dimensions():
    features = torch.tensor([[0.0, -4.0, 2.0], [1.0, 9.0, 2.0], [4.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
    got = decode(encode(features, "int8"))
    assert (got[[0, 3], 0] == 0).all()
    torch.testing.assert_close(got, features, atol=0.12, rtol=0.01)
    assert torch.equal(decode(encode(torch.zeros(3, 2), "int8")), torch.zeros(3, 2))


@pytest.mark.parametrize("storage", ["int4", "int8:", "int8:0", "int8:256", "f8"])
def test_unknown_storage_is_refused(storage):
    with pytest.raises(UsageError, match="int8:STEPS"):
        encode(torch.zeros(1, 1), storage)


@pytest.mark.parametrize("storage", ["f16", "f32", "int8", "int8:127"])
def test_every_storage_comes_back(tmp_path, toy_backbone, toy_bank, storage):
    folder = toy_backbone()
    path = folder / bank_name("cifar100")
    write_bank(path, toy_bank(), storage)
    card = read_json(folder / "card.json", "card")
    write_json(folder / "card.json", {**card, "files": {path.name: sha256_file(path)}})
    got = open_bank(open_backbone(folder), "cifar100").features
    torch.testing.assert_close(got.float(), toy_bank().features.float(), atol=0.02, rtol=0)
