"""CIFAR-100 from an image folder and from the official archive's layout."""

import hashlib
import io
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fscil_bench.datasets import cifar100, find_root, reader, require_root
from fscil_bench.datasets.images import View
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocols import load_protocol

VIEW = View(32)


@pytest.fixture
def copy(tiny_cifar, tmp_path):
    """A copy of the tiny image folder that a test may damage."""
    shutil.copytree(tiny_cifar, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def archive(tmp_path, monkeypatch, tiny_cifar):
    """A data root in the archive's layout, with the tiny images in a shuffled order; md5s are those of these files."""
    classes = load_protocol("cifar100").classes
    root = tmp_path / "archived"
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        paths = sorted((tiny_cifar / "cifar100" / split).glob("*/*.png"))
        paths = [paths[i] for i in np.random.default_rng(0).permutation(len(paths))]
        batch = {
            "filenames": [p.name for p in paths],
            "fine_labels": [classes.index(p.parent.name) for p in paths],
            "data": np.stack([np.asarray(Image.open(p)).transpose(2, 0, 1).reshape(-1) for p in paths]),
        }
        (folder / split).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": list(classes)}, protocol=2))
    md5s = {p.name: hashlib.md5(p.read_bytes()).hexdigest() for p in folder.iterdir()}
    monkeypatch.setattr(cifar100, "official_md5s", lambda: md5s)
    return root


def test_folder_and_archive_give_the_same_images(tiny_cifar, archive):
    one, other = cifar100.open_images(tiny_cifar), cifar100.open_images(archive)
    assert one.ids == other.ids
    assert one.classes == other.classes
    np.testing.assert_array_equal(one.labels, other.labels)
    rows = np.array([0, 17, 400, 799])
    assert torch.equal(one.read(rows, VIEW).pixels, other.read(rows, VIEW).pixels)


def test_images_are_ordered_train_first_then_class_then_id(tiny_cifar):
    images = cifar100.open_images(tiny_cifar)
    keys = list(zip(images.is_test, images.labels, images.ids, strict=True))
    assert keys == sorted(keys)
    assert images.ids[0] == "train/apple/apple_s_000000.png"


def test_pixels_are_the_files(tiny_cifar):
    images = cifar100.open_images(tiny_cifar)
    expected = np.asarray(Image.open(tiny_cifar / "cifar100" / images.ids[123]))
    np.testing.assert_array_equal(images.read(np.array([123]), VIEW).pixels[0].permute(1, 2, 0).numpy(), expected)


def test_official_order_is_known_only_from_the_archive(tiny_cifar, archive):
    assert cifar100.official_train_ids(tiny_cifar) is None
    listed = cifar100.official_train_ids(archive)
    assert listed is not None
    assert sorted(listed) == sorted(i for i in cifar100.open_images(archive).ids if i.startswith("train/"))


def test_a_changed_archive_is_refused(archive):
    path = archive / "cifar-100-python" / "train"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(FscilError, match="md5 differs"):
        cifar100.open_images(archive)


def test_code_in_a_pickle_is_never_run(archive, tmp_path, monkeypatch):
    class Attack:
        def __reduce__(self):
            return Path.touch, (tmp_path / "pwned",)

    path = archive / "cifar-100-python" / "meta"
    path.write_bytes(pickle.dumps(Attack()))
    md5s = {**cifar100.official_md5s(), "meta": hashlib.md5(path.read_bytes()).hexdigest()}
    monkeypatch.setattr(cifar100, "official_md5s", lambda: md5s)
    with pytest.raises(FscilError, match="refused"):
        cifar100.open_images(archive)
    assert not (tmp_path / "pwned").exists()


def test_official_md5s_name_the_archives_files():
    assert set(cifar100.official_md5s()) == {"train", "test", "meta"}


def test_a_corrupt_image_is_named(copy):
    path = copy / "cifar100" / "train" / "bear" / "bear_s_000001.png"
    path.write_bytes(path.read_bytes()[:100])
    images = cifar100.open_images(copy)
    with pytest.raises(FscilError, match=r"cannot use image .*bear_s_000001.png"):
        images.read(np.arange(len(images.ids)), VIEW)


def test_an_image_of_another_size_is_named(copy):
    path = copy / "cifar100" / "test" / "bear" / "bear_s_000000.png"
    Image.new("RGB", (33, 32)).save(path)
    images = cifar100.open_images(copy)
    with pytest.raises(FscilError, match="33x32 pixels, expected 32x32"):
        images.read(np.arange(len(images.ids)), VIEW)


def test_missing_class_folders_are_named(copy):
    shutil.rmtree(copy / "cifar100" / "train" / "bear")
    with pytest.raises(UsageError, match="lacks class folders: train/bear"):
        cifar100.open_images(copy)


def test_an_empty_root_is_explained(tmp_path):
    with pytest.raises(UsageError, match=r"no CIFAR-100 in .* data prepare cifar100"):
        cifar100.open_images(tmp_path)


def expect(monkeypatch, images):
    """Let the tiny copy count as the official dataset."""
    sums = {}
    pixels = images.read(np.arange(len(images.ids)), VIEW).pixels.numpy()
    for split in ("train", "test"):
        for number, name in enumerate(images.classes):
            rows = images.rows(split, [number])
            ids = cifar100.digest(*(images.ids[r].encode() for r in rows))
            sums[f"{split}/{name}"] = {"ids": ids, "pixels": cifar100.digest(pixels[rows].tobytes())}
    monkeypatch.setattr(cifar100, "released", lambda _: sums)
    monkeypatch.setattr(cifar100, "EXPECTED", {"train": 6, "test": 2})


def test_verify_accepts_the_official_images(tiny_cifar, archive, monkeypatch):
    expect(monkeypatch, cifar100.open_images(tiny_cifar))
    assert cifar100.verify(tiny_cifar).problems == []
    assert cifar100.verify(archive).problems == []


def test_verify_lists_everything_wrong(copy, monkeypatch):
    expect(monkeypatch, cifar100.open_images(copy))
    folder = copy / "cifar100" / "train"
    (folder / "bear" / "bear_s_000000.png").unlink()
    (folder / "bed" / "bed_s_000000.png").rename(folder / "bed" / "other.png")
    Image.new("RGB", (32, 32)).save(folder / "bee" / "bee_s_000000.png")
    (folder / "beetle" / "beetle_s_000000.png").write_bytes(b"no image")
    shutil.rmtree(copy / "cifar100" / "test" / "worm")
    report = cifar100.verify(copy)
    assert report.counts["bear"] == {"train": 5, "test": 2}
    assert report.problems[:-1] == [
        "train/bear: 5 images, expected 6",
        "test/worm: 0 images, expected 2",
        "train/bear: file names differ from the official ones",
        "train/bed: file names differ from the official ones",
        "train/bee: pixels differ from the official ones",
        "train/beetle: pixels differ from the official ones",
        "test/worm: file names differ from the official ones",
    ]
    assert "beetle_s_000000.png" in report.problems[-1]


@pytest.fixture
def tarball(archive, tmp_path, monkeypatch):
    """The archive as a tar file that counts as the official one."""
    path = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(archive / "cifar-100-python", "cifar-100-python")
    from torchvision.datasets import CIFAR100

    monkeypatch.setattr(CIFAR100, "tgz_md5", hashlib.md5(path.read_bytes()).hexdigest())
    return path


def test_prepare_unpacks_a_local_archive(tarball, tmp_path, cli):
    root = tmp_path / "fresh"
    done = cli("data", "prepare", "cifar100", "--data-root", root, "--archive", tarball)
    assert done.code == 0, done.err
    assert len(cifar100.open_images(root).ids) == 800
    again = cli("data", "prepare", "cifar100", "--data-root", root, "--archive", tarball)
    assert again.code == 2
    assert "is there already" in again.error_line


def test_prepare_refuses_another_archive_and_leaves_nothing(tarball, tmp_path, cli):
    tarball.write_bytes(tarball.read_bytes()[:-1])
    root = tmp_path / "fresh"
    done = cli("data", "prepare", "cifar100", "--data-root", root, "--archive", tarball)
    assert done.code == 1
    assert "not the official archive" in done.error_line
    assert not (root / "cifar-100-python").exists()


def test_prepare_never_writes_outside(tmp_path, monkeypatch):
    from fscil_bench.datasets.archives import extract_tar

    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("cifar-100-python/../../escaped")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    target = tmp_path / "inner" / "root" / "cifar-100-python"
    with pytest.raises(FscilError, match="cannot unpack"):
        extract_tar(path, md5, "cifar-100-python", target)
    assert not list(tmp_path.rglob("escaped"))
    assert not target.exists()


def test_prepare_downloads_and_checks(tarball, tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR100

    monkeypatch.setattr(CIFAR100, "url", tarball.as_uri())
    root = tmp_path / "downloaded"
    assert cifar100.prepare(root, None) == root / "cifar-100-python"


def test_a_failed_download_says_what_to_do(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR100

    monkeypatch.setattr(CIFAR100, "url", (tmp_path / "nowhere.tar.gz").as_uri())
    with pytest.raises(FscilError, match=r"cannot download .* --archive FILE"):
        cifar100.prepare(tmp_path / "root", None)
    assert list((tmp_path / "root").iterdir()) == []


def test_data_root_from_option_or_environment(tmp_path, monkeypatch):
    assert find_root(None) is None
    monkeypatch.setenv("FSCIL_BENCH_DATA", str(tmp_path))
    assert find_root(None) == tmp_path
    assert find_root(tmp_path / "other") == tmp_path / "other"
    with pytest.raises(UsageError, match="is not a folder"):
        require_root(tmp_path / "other")
    monkeypatch.delenv("FSCIL_BENCH_DATA")
    with pytest.raises(UsageError, match="FSCIL_BENCH_DATA"):
        require_root(None)


def test_datasets_without_a_reader_are_named():
    with pytest.raises(UsageError, match="unknown dataset with a reader 'cifar10': did you mean 'cifar100'"):
        reader("cifar10")
