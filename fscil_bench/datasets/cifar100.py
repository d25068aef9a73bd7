"""CIFAR-100, from the official archive (`cifar-100-python/`) or from an image folder (`cifar100/<split>/<class>/`)."""

import hashlib
import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fscil_bench.datasets.archives import extract_tar, fetch
from fscil_bench.datasets.images import (
    ImageSet,
    View,
    decode_files,
    in_order,
    list_folder,
    require_class_folders,
    view_arrays,
)
from fscil_bench.datasets.verification import Verification, count_images, digest, released
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import require_writable
from fscil_bench.protocols import load_protocol

NAME = "cifar100"
ARCHIVE, FOLDER = "cifar-100-python", "cifar100"
SIZE = 32
EXPECTED = {"train": 500, "test": 100}  # images a class


def official_md5s() -> dict[str, str]:
    """md5 of the files of the official archive, as torchvision knows them."""
    from torchvision.datasets import CIFAR100

    listed = CIFAR100.train_list + CIFAR100.test_list
    return {**dict(listed), CIFAR100.meta["filename"]: CIFAR100.meta["md5"]}


def open_images(root: Path) -> ImageSet:
    """The images under `root`, from the archive's files if they are there, else from the image folder."""
    if (root / ARCHIVE).is_dir():
        return _open_archive(root / ARCHIVE, official_md5s())
    if (root / FOLDER).is_dir():
        return _open_folder(root / FOLDER)
    raise UsageError(
        f"no CIFAR-100 in {root}: expected {ARCHIVE}/ (official archive) or {FOLDER}/<train|test>/<class>/*.png. "
        f"`fscil-bench data prepare {NAME} --data-root {root}` gets it"
    )


def official_train_ids(root: Path) -> list[str] | None:
    """Image ids in the order of the official training batch, if `root` holds the archive: what index lists refer to."""
    if not (root / ARCHIVE).is_dir():
        return None
    md5s = official_md5s()
    names = _class_names(root / ARCHIVE, md5s)
    batch = _load(root / ARCHIVE / "train", md5s)
    return [_archive_id("train", names[y], f) for y, f in zip(batch["fine_labels"], batch["filenames"], strict=True)]


def verify(root: Path) -> Verification:
    """Compare what is under `root` with the official dataset: counts by class and split, file names, pixels."""
    unreadable: list[str] = []
    folder_only = not (root / ARCHIVE).is_dir() and (root / FOLDER).is_dir()
    images = _list_folder(root / FOLDER, unreadable) if folder_only else open_images(root)
    report = count_images(images, lambda split, _: EXPECTED[split])
    pixels = images.read(np.arange(len(images.ids)), View(SIZE)).pixels.numpy()
    for key, sums in released(NAME).items():
        split, name = key.split("/")
        rows = images.rows(split, [images.classes.index(name)])
        if digest(*(images.ids[r].encode() for r in rows)) != sums["ids"]:
            report.problems.append(f"{key}: file names differ from the official ones")
        elif digest(pixels[rows].tobytes()) != sums["pixels"]:
            report.problems.append(f"{key}: pixels differ from the official ones")
    report.problems += unreadable
    report.compared = "counts, file names and pixels"
    return report


def prepare(root: Path, archive: Path | None) -> Path:
    """Put the official archive's files under `root`, from a local copy or by download: whole, or not at all."""
    from torchvision.datasets import CIFAR100

    target = root / ARCHIVE
    require_writable(root, "--data-root")
    if target.is_dir():
        raise UsageError(f"{target} is there already: `fscil-bench data verify {NAME}` checks it")
    source = fetch(CIFAR100.url, CIFAR100.tgz_md5, root) if archive is None else archive
    extract_tar(source, md5=CIFAR100.tgz_md5, member=ARCHIVE, target=target)
    return target


def _open_folder(folder: Path) -> ImageSet:
    require_class_folders(folder, load_protocol(NAME).classes, ".png")
    return _list_folder(folder, None)


def _list_folder(folder: Path, problems: list[str] | None) -> ImageSet:
    classes = load_protocol(NAME).classes
    ids, labels = list_folder(folder, classes, ".png")
    paths = [folder / i for i in ids]
    return in_order(
        NAME, classes, ids, labels, lambda rows, view: decode_files([paths[r] for r in rows], view, problems)
    )


def _open_archive(folder: Path, md5s: Mapping[str, str]) -> ImageSet:
    names = _class_names(folder, md5s)
    ids: list[str] = []
    labels: list[int] = []
    pixels = []
    for split in EXPECTED:
        batch = _load(folder / split, md5s)
        ids += [_archive_id(split, names[y], f) for y, f in zip(batch["fine_labels"], batch["filenames"], strict=True)]
        labels += batch["fine_labels"]
        pixels.append(np.asarray(batch["data"], dtype=np.uint8).reshape(-1, 3, SIZE, SIZE))
    stacked = np.concatenate(pixels)
    return in_order(NAME, names, ids, labels, lambda rows, view: view_arrays(stacked[rows], view))


def _class_names(folder: Path, md5s: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(_text(n) for n in _load(folder / "meta", md5s)["fine_label_names"])


def _archive_id(split: str, class_name: str, file_name: str | bytes) -> str:
    return f"{split}/{class_name}/{_text(file_name)}"


def _load(path: Path, md5s: Mapping[str, str]) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}): unpack the official archive there") from error
    if hashlib.md5(data).hexdigest() != md5s[path.name]:
        raise FscilError(f"{path} is not the official file (md5 differs): unpack the official archive anew")
    return {_text(k): v for k, v in _ArraysOnly(io.BytesIO(data), encoding="latin1").load().items()}


class _ArraysOnly(pickle.Unpickler):
    """Unpickles dicts, lists, text and numpy arrays; any other class in the file is an error, never called."""

    _ADMITTED = frozenset(
        {("_reconstruct", "multiarray"), ("ndarray", "numpy"), ("dtype", "numpy"), ("encode", "_codecs")}
    )

    def find_class(self, module: str, name: str) -> Any:
        if (name, module.rsplit(".", 1)[-1]) not in self._ADMITTED:
            raise FscilError(f"the CIFAR-100 archive asks for {module}.{name}, which is no array: refused")
        if name == "_reconstruct":
            module = "numpy._core.multiarray"
        return super().find_class(module, name)


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value
