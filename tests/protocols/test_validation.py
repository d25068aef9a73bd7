"""The validation protocol: its images, its backbone, and what never reaches it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fscil_bench import protocols
from fscil_bench.backbones.store import home
from fscil_bench.errors import UsageError
from fscil_bench.evaluate import Arena
from fscil_bench.files import sha256_json
from fscil_bench.protocols import HeldOut, load_protocol
from fscil_bench.protocols.draws import Split, UnresolvedDrawError
from fscil_bench.registry import configure

VAL = "cifar100-val"


@pytest.fixture
def split(toy_bank):
    return Split(load_protocol(VAL), toy_bank(train=500, test=1))


def test_training_and_test_images_are_apart_and_none_is_an_official_test_image(split):
    assert not set(split.train_rows) & set(split.test_rows)
    assert not split.bank.is_test[np.concatenate((split.train_rows, split.test_rows))].any()
    assert np.bincount(split.targets[split.train_rows]).tolist() == [400] * 60
    assert np.bincount(split.targets[split.test_rows]).tolist() == [100] * 60
    assert set(split.targets[split.base_rows]) == set(range(40))
    assert not set(split.random_draw(0).rows.ravel()) & set(split.test_rows)


@pytest.mark.parametrize(("number", "first"), [(0, [13, 19, 22]), (59, [6, 7, 8])])
def test_held_out_images_follow_the_documented_rule(split, number, first):
    bits = np.random.PCG64(np.random.SeedSequence([1000, number]))
    expected = sorted(np.random.Generator(bits).permutation(500)[-100:])
    ids = sorted(i for i in split.bank.ids if i.startswith(f"train/{split.protocol.classes[number]}/"))
    held = split.test_rows[split.targets[split.test_rows] == number]
    assert [split.bank.ids[row] for row in held] == [ids[k] for k in expected]
    assert expected[:3] == first  # pinned


def test_another_seed_holds_out_other_images(toy_bank, split):
    other = Split(replace(split.protocol, held_out=HeldOut(per_class=100, seed=1)), split.bank)
    assert set(other.test_rows) != set(split.test_rows)


def test_too_few_images_to_hold_out_are_named(toy_bank):
    with pytest.raises(UsageError, match="class apple has 100 training images, of which cifar100-val holds out 100"):
        Split(load_protocol(VAL), toy_bank(train=100))


def test_it_has_no_standard_draw(toy_backbone, toy_bank, cli):
    folder = toy_backbone(bank=toy_bank(dataset=VAL, train=106, test=0), protocol=VAL)
    arena = Arena(VAL, str(folder))
    draws, missing = arena.full_draws(costly=True)
    assert [draw.name for draw in draws] == [f"random:{seed}" for seed in range(10)]
    assert missing == ""
    with pytest.raises(UnresolvedDrawError, match="has no standard draw"):
        arena.draws(["standard"])
    call = ("run", "--method", "teen", "--dataset", VAL, "--backbone", folder)
    asked = cli(*call, "--draw", "standard")
    assert asked.code == 2
    assert "has no standard draw" in asked.error_line
    done = cli(*call)
    assert done.code == 0, done.err
    assert "standard" not in done.out + done.err
    assert "100 random, random:0 to random:99" in done.out


def test_a_method_has_the_defaults_of_the_dataset():
    assert configure("teen", VAL).settings == configure("teen", "cifar100").settings


@pytest.mark.parametrize(("trained_for", "what"), [("cifar100", "20 new classes"), ("cifar100-other", "test images")])
def test_a_backbone_that_has_seen_its_images_is_refused(toy_backbone, toy_bank, read, monkeypatch, trained_for, what):
    other = replace(load_protocol(VAL), name="cifar100-other", held_out=None)
    known = {name: load_protocol(name) for name in ("cifar100", VAL)} | {"cifar100-other": other}
    monkeypatch.setattr("fscil_bench.evaluate.load_protocol", known.__getitem__)
    monkeypatch.setattr("fscil_bench.evaluate.protocol_names", lambda: list(known))
    folder = toy_backbone(bank=toy_bank(dataset=VAL, train=106), protocol=VAL)
    card = read(folder / "card.json") | {"dataset": trained_for, "epochs": 3}
    (folder / "card.json").write_text(json.dumps(card))
    with pytest.raises(UsageError, match=f"was trained on {what} of cifar100-val"):
        Arena(VAL, str(folder))


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The validation protocol with one held-out image a class."""
    folder = tmp_path / "protocols"
    folder.mkdir()
    data = json.loads((protocols._folder() / f"{VAL}.json").read_text())
    data["held_out"]["per_class"] = 1
    real = (protocols._folder() / "cifar100.json").read_text()
    (folder / "cifar100.json").write_text(real)
    (folder / f"{VAL}.json").write_text(json.dumps(data))
    sums = {"cifar100.json": sha256_json(json.loads(real)), f"{VAL}.json": sha256_json(data)}
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    caches = (load_protocol, protocols._checksums)
    monkeypatch.setattr(protocols, "_folder", lambda: folder)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_from_images_to_a_row(small, cli, tiny_cifar, read):
    """Training sees the 40 classes' kept images only; the bank holds no test image; run and compare take it."""
    train = ("backbone", "train", "--dataset", VAL, "--device", "cpu", "--threads", "1", "--data-root", tiny_cifar)
    tiny = ("--set", "network=resnet8", "--set", "epochs=1", "--set", "batch_size=40")
    done = cli(*train, *tiny)
    assert done.code == 0, done.err
    folder = next((home() / "backbones").iterdir())
    assert folder.name.startswith("cifar100-val-resnet8-short-")
    card = read(folder / "card.json")
    assert (card["dataset"], list(card["session0"])) == (VAL, [VAL])
    arena = Arena(VAL, folder.name)
    assert len(arena.split.bank.ids) == 60 * 6
    assert not any(i.startswith("test/") for i in arena.split.bank.ids)
    before = (folder / "bank-cifar100.safetensors").read_bytes()
    again = cli("backbone", "extract", folder.name, "--dataset", VAL, "--data-root", tiny_cifar, "--device", "cpu")
    assert again.code == 0, again.err
    assert (folder / "bank-cifar100.safetensors").read_bytes() == before
    on = ("--dataset", VAL, "--backbone", folder.name)
    for row in (("teen",), ("teen", "--set", "variant=paper"), ("protonet",)):
        assert cli("run", "--method", *row, *on).code == 0
    compared = cli("compare", "teen", *on)  # measures no row: other processes do not know the small protocol
    assert compared.code == 0, compared.err
    assert "cifar100-val on" in compared.out
    elsewhere = cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", folder.name, "--draws", "2")
    assert elsewhere.code == 1
    assert "lacks classes of protocol cifar100" in elsewhere.error_line


def test_only_kept_images_of_base_classes_are_trained_on(small, tiny_cifar):
    from fscil_bench.backbones.make import _images
    from fscil_bench.backbones.recipes import load_recipe
    from fscil_bench.backbones.training import Plan
    from fscil_bench.datasets.cifar100 import open_images

    images, protocol = open_images(tiny_cifar), load_protocol(VAL)
    recipe = load_recipe("short", VAL)
    training, held_out = _images(images, protocol, Plan(recipe=recipe, n_classes=40, select="test"))
    assert np.bincount(training.labels).tolist() == [5] * 40
    assert np.bincount(held_out.labels).tolist() == [1] * 40
    seen = {picture.tobytes() for picture in training.pixels.numpy()}
    assert not any(picture.tobytes() in seen for picture in held_out.pixels.numpy())


def test_its_default_backbone_is_the_one_that_training_makes():
    from fscil_bench.backbones.make import backbone_id
    from fscil_bench.backbones.recipes import load_recipe
    from fscil_bench.backbones.training import Plan

    protocol = load_protocol(VAL)
    plan = Plan(recipe=load_recipe("short", VAL), n_classes=protocol.base)
    assert backbone_id(plan) == protocol.default_backbone == "cifar100-val-resnet20-short"
