"""CUB-200-2011 in its official layout."""

import hashlib
import tarfile

import numpy as np
import pytest
from PIL import Image

from fscil_bench.datasets import cub200
from fscil_bench.datasets.images import View
from fscil_bench.datasets.verification import released
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocols import load_protocol


@pytest.fixture
def root(tmp_path):
    """All 200 classes, 2 training images and 1 test image each, of different shapes."""
    folder = tmp_path / "data" / "CUB_200_2011"
    lists = {"images": [], "image_class_labels": [], "train_test_split": [], "classes": []}
    for number, name in enumerate(load_protocol("cub200").classes):
        lists["classes"].append(name)
        (folder / "images" / name).mkdir(parents=True)
        for k in range(3):
            file = f"{name}/{name[4:]}_{k:04d}.jpg"
            Image.new("RGB", (24 + k, 20), (number, 0, 100 * k)).save(folder / "images" / file)
            lists["images"].append(file)
            lists["image_class_labels"].append(number + 1)
            lists["train_test_split"].append(int(k < 2))
    for name, column in lists.items():
        (folder / f"{name}.txt").write_text("".join(f"{i} {value}\n" for i, value in enumerate(column, 1)))
    return folder.parent


def test_images_follow_the_official_lists(root):
    images = cub200.open_images(root)
    assert images.classes == load_protocol("cub200").classes
    assert (len(images.ids), int(images.is_test.sum())) == (600, 200)
    name = images.classes[100]
    assert images.ids[200] == f"train/{name}/{name[4:]}_0000.jpg"
    pixels, aspect = images.read(np.array([0, 599]), View(16, 18))
    assert pixels.shape == (2, 3, 16, 16)
    assert aspect[1] == pytest.approx(26 / 20)


def test_the_release_has_the_known_counts():
    counts = dict.fromkeys(("train", "test"), 0)
    base_tests = 0
    base = set(load_protocol("cub200").classes[:100])
    for key, facts in released("cub200").items():
        split, name = key.split("/")
        counts[split] += facts["images"]
        base_tests += facts["images"] if split == "test" and name in base else 0
    assert counts == {"train": 5994, "test": 5794}
    assert base_tests == 2864


def test_verify_lists_what_is_wrong(root):
    broken = root / "CUB_200_2011" / "images" / "001.Black_footed_Albatross" / "Black_footed_Albatross_0001.jpg"
    broken.write_bytes(b"no image")
    report = cub200.verify(root)
    assert report.counts["001.Black_footed_Albatross"] == {"train": 2, "test": 1}
    assert any(p.startswith("train/001.Black_footed_Albatross: 2 images, expected") for p in report.problems)
    assert any("Black_footed_Albatross_0001.jpg" in p for p in report.problems)


def test_wrong_roots_and_lists_are_named(root, tmp_path):
    with pytest.raises(UsageError, match="no CUB-200-2011 in"):
        cub200.open_images(tmp_path)
    (root / "CUB_200_2011" / "train_test_split.txt").write_text("1 1\n")
    with pytest.raises(FscilError, match="different lengths"):
        cub200.open_images(root)
    (root / "CUB_200_2011" / "images.txt").unlink()
    with pytest.raises(UsageError, match=r"images\.txt"):
        cub200.open_images(root)


def test_prepare_unpacks_a_local_archive(root, tmp_path, monkeypatch):
    path = tmp_path / "CUB_200_2011.tgz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(root / "CUB_200_2011", "CUB_200_2011")
    with pytest.raises(FscilError, match="not the official archive"):
        cub200.prepare(tmp_path / "fresh", path)
    monkeypatch.setattr(cub200, "MD5", hashlib.md5(path.read_bytes()).hexdigest())
    cub200.prepare(tmp_path / "fresh", path)
    assert len(cub200.open_images(tmp_path / "fresh").ids) == 600
