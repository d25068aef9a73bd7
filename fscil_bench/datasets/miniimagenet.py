"""miniImageNet as FSCIL uses it: `miniimagenet/images/<wnid><number>.jpg`, 500 training and 100 test images a class.

This is not the 64/16/20 class split of few-shot learning: all 100 classes have training and test images, and which are
which is listed in miniimagenet.json beside this file (class -> the numbers of its test images).
"""

from pathlib import Path

import numpy as np

from fscil_bench.datasets.archives import extract_any
from fscil_bench.datasets.images import ImageSet, View, decode_files, in_order
from fscil_bench.datasets.verification import Verification, count_images, released
from fscil_bench.errors import UsageError
from fscil_bench.files import require_writable
from fscil_bench.protocols import load_protocol

NAME = "miniimagenet"
FOLDER = "miniimagenet"
EXPECTED = {"train": 500, "test": 100}  # images a class
WNID = 9  # characters of a class name


def open_images(root: Path) -> ImageSet:
    """The images under `root`, split into training and test images as the FSCIL lists have it."""
    return _list(root, None)


def verify(root: Path) -> Verification:
    """Count the images of every class and split, look for every test image, and read all."""
    problems: list[str] = []
    images = _list(root, problems)
    report = count_images(images, lambda split, _: EXPECTED[split])
    there = set(images.ids)
    for name, numbers in released(NAME).items():
        missing = [n for n in numbers if f"test/{name}/{name}{n:08d}.jpg" not in there]
        if missing:
            report.problems.append(
                f"test/{name}: {len(missing)} test images are missing, as {name}{missing[0]:08d}.jpg"
            )
    images.read(np.arange(len(images.ids)), View(32, 32))
    report.problems += problems
    report.compared = "counts and names of test images"
    return report


def prepare(root: Path, archive: Path | None) -> Path:
    """Unpack a local archive (tar or zip) that holds the 84-pixel images; there is no official one to download."""
    target = root / FOLDER / "images"
    require_writable(root, "--data-root")
    if target.is_dir():
        raise UsageError(f"{target} is there already: `fscil-bench data verify {NAME}` checks it")
    if archive is None:
        raise UsageError("miniImageNet has no official download: pass --archive FILE with your copy (a folder images/)")
    extract_any(archive, member="images", target=target)
    return target


def _list(root: Path, problems: list[str] | None) -> ImageSet:
    folder = root / FOLDER / "images"
    if not folder.is_dir():
        raise UsageError(f"no miniImageNet in {root}: expected {FOLDER}/images/<wnid><number>.jpg")
    classes = load_protocol(NAME).classes
    label_of = {name: label for label, name in enumerate(classes)}
    test = {f"{name}{number:08d}.jpg" for name, numbers in released(NAME).items() for number in numbers}
    files = sorted(path.name for path in folder.glob("*.jpg") if path.name[:WNID] in label_of)
    ids = [f"{'test' if file in test else 'train'}/{file[:WNID]}/{file}" for file in files]
    labels = [label_of[file[:WNID]] for file in files]
    paths = [folder / file for file in files]
    return in_order(
        NAME, classes, ids, labels, lambda rows, view: decode_files([paths[r] for r in rows], view, problems)
    )
