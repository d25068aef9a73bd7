"""miniImageNet with the FSCIL split of each class's images."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from fscil_bench.datasets import miniimagenet
from fscil_bench.datasets.images import View
from fscil_bench.datasets.verification import released
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocols import load_protocol


@pytest.fixture
def root(tmp_path):
    """Of every class its first test image and two others."""
    folder = tmp_path / "data" / "miniimagenet" / "images"
    folder.mkdir(parents=True)
    for name, numbers in released("miniimagenet").items():
        others = [n for n in range(1, 400) if n not in numbers][:2]
        for number in (numbers[0], *others):
            Image.new("RGB", (84, 84), (number % 256, 0, 0)).save(folder / f"{name}{number:08d}.jpg")
    return folder.parents[1]


def test_test_images_are_the_listed_ones(root):
    images = miniimagenet.open_images(root)
    assert images.classes == load_protocol("miniimagenet").classes
    assert (len(images.ids), int(images.is_test.sum())) == (300, 100)
    first = next(image for image in images.ids if image.startswith("test/n01532829/"))
    assert first == "test/n01532829/n0153282900000007.jpg"
    assert images.read(np.array([0]), View(84, 92, squash=True)).pixels.shape == (1, 3, 84, 84)


def test_the_split_has_100_test_images_a_class_and_none_of_them_is_support():
    listed = released("miniimagenet")
    assert {len(set(numbers)) for numbers in listed.values()} == {100}
    support = {image for images in load_protocol("miniimagenet").support for image in images}
    tests = {f"train/{name}/{name}{n:08d}.jpg" for name, numbers in listed.items() for n in numbers}
    assert not support & tests


def test_verify_lists_what_is_missing(root):
    report = miniimagenet.verify(root)
    assert "train/n01532829: 2 images, expected 500" in report.problems
    assert "test/n01532829: 99 test images are missing, as n0153282900000028.jpg" in report.problems


def test_prepare_takes_a_zip_and_wants_images_in_it(root, tmp_path):
    path = tmp_path / "mini.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        for file in (root / "miniimagenet" / "images").iterdir():
            zipped.write(file, f"whatever/images/{file.name}")
    miniimagenet.prepare(tmp_path / "fresh", path)
    assert len(miniimagenet.open_images(tmp_path / "fresh").ids) == 300
    with pytest.raises(UsageError, match="no official download"):
        miniimagenet.prepare(tmp_path / "other", None)
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("readme.txt", "nothing")
    with pytest.raises(FscilError, match="has no folder images/"):
        miniimagenet.prepare(tmp_path / "other", path)
    with pytest.raises(UsageError, match="no miniImageNet in"):
        miniimagenet.open_images(tmp_path / "other")
