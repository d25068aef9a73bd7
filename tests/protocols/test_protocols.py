"""The standard protocols are the literature's, and stay so."""

import json

import pytest

from fscil_bench import protocols
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocols import load_protocol, parse_protocol, protocol_names


@pytest.mark.parametrize(
    ("name", "base", "way", "sessions", "classes"),
    [
        ("cifar100", 60, 5, 8, 100),
        ("cub200", 100, 10, 10, 200),
        ("miniimagenet", 60, 5, 8, 100),
        ("cifar100-val", 40, 5, 4, 60),
    ],
)
def test_shape(name, base, way, sessions, classes):
    protocol = load_protocol(name)
    assert (protocol.base, protocol.way, protocol.sessions, len(protocol.classes)) == (base, way, sessions, classes)
    assert len(set(protocol.classes)) == classes
    assert protocol.seen[0] == base
    assert protocol.seen[-1] == classes


@pytest.mark.parametrize("name", [name for name in protocol_names() if load_protocol(name).support])
def test_standard_draw_has_distinct_images_for_every_new_class(name):
    protocol = load_protocol(name)
    assert [len(images) for images in protocol.support] == [5] * len(protocol.new_classes)
    images = [image for of_class in protocol.support for image in of_class]
    assert len(set(images)) == len(images)


@pytest.mark.parametrize("name", ["cub200", "miniimagenet"])
def test_standard_draw_names_training_images_of_its_class(name):
    protocol = load_protocol(name)
    for number, images in zip(protocol.new_classes, protocol.support, strict=True):
        assert all(image.startswith(f"train/{protocol.classes[number]}/") for image in images)


def test_cifar_classes_are_in_the_official_order():
    classes = load_protocol("cifar100").classes
    assert list(classes) == sorted(classes)
    assert (classes[0], classes[59], classes[99]) == ("apple", "pine_tree", "worm")


def test_known_first_images_of_the_standard_draws():
    assert load_protocol("cifar100").support[0] == (29774, 33344, 4815, 6772, 48317)
    assert load_protocol("cub200").support[0][0] == "train/101.White_Pelican/White_Pelican_0081_96148.jpg"
    assert load_protocol("miniimagenet").support[0][0] == "train/n03544143/n0354414300000811.jpg"


def test_a_changed_file_is_refused(tmp_path, monkeypatch):
    folder = protocols._folder()
    data = json.loads((folder / "cifar100.json").read_text())
    data["support"][0][0] += 1
    (tmp_path / "cifar100.json").write_text(json.dumps(data))
    (tmp_path / "SHA256SUMS").write_text((folder / "SHA256SUMS").read_text())
    monkeypatch.setattr(protocols, "_folder", lambda: tmp_path)
    load_protocol.cache_clear()
    try:
        with pytest.raises(FscilError, match="checksum differs"):
            load_protocol("cifar100")
    finally:
        load_protocol.cache_clear()


def test_the_validation_protocol_is_made_of_base_classes_alone():
    real, val = load_protocol("cifar100"), load_protocol("cifar100-val")
    assert val.classes == real.classes[: real.base]
    assert val.is_validation
    assert not val.support
    assert not any(load_protocol(name).is_validation for name in ("cifar100", "cub200", "miniimagenet"))


@pytest.mark.parametrize("held_out", [{"per_class": 0, "seed": 0}, {"per_class": 5, "seed": -1}])
def test_held_out_images_must_make_sense(held_out):
    data = json.loads((protocols._folder() / "cifar100-val.json").read_text())
    with pytest.raises(FscilError, match="held_out"):
        parse_protocol({**data, "held_out": held_out})


def test_other_schemas_are_refused():
    with pytest.raises(FscilError, match="schema"):
        parse_protocol({"schema": "something/2"})


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'cub200'"):
        load_protocol("cub_200")
