"""CUB-200-2011 from its official layout, `CUB_200_2011/`: images/<class>/*.jpg and the lists beside it."""

from pathlib import Path

import numpy as np

from fscil_bench.datasets.archives import extract_tar, fetch
from fscil_bench.datasets.images import ImageSet, View, decode_files, in_order
from fscil_bench.datasets.verification import Verification, count_images, digest, released
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import require_writable

NAME = "cub200"
FOLDER = "CUB_200_2011"
URL = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
MD5 = "97eceeb196236b17998738112f37df78"


def open_images(root: Path) -> ImageSet:
    """The images that the official lists name; a file that is missing is an error when it is read."""
    return _list(root, None)


def verify(root: Path) -> Verification:
    """Compare the lists with the official ones, and read every image."""
    problems: list[str] = []
    images = _list(root, problems)
    expected = released(NAME)
    report = count_images(images, lambda split, name: expected[f"{split}/{name}"]["images"])
    for key, sums in expected.items():
        ids = [image for image in images.ids if image.startswith(f"{key}/")]
        if digest(*(image.encode() for image in ids)) != sums["ids"]:
            report.problems.append(f"{key}: file names differ from the official ones")
    images.read(np.arange(len(images.ids)), View(32, 32))
    report.problems += problems
    report.compared = "counts and file names"
    return report


def prepare(root: Path, archive: Path | None) -> Path:
    """Put the official archive's files under `root`, from a local copy or by download: whole, or not at all."""
    target = root / FOLDER
    require_writable(root, "--data-root")
    if target.is_dir():
        raise UsageError(f"{target} is there already: `fscil-bench data verify {NAME}` checks it")
    source = fetch(URL, MD5, root) if archive is None else archive
    extract_tar(source, md5=MD5, member=FOLDER, target=target)
    return target


def _list(root: Path, problems: list[str] | None) -> ImageSet:
    folder = root / FOLDER
    if not folder.is_dir():
        raise UsageError(
            f"no CUB-200-2011 in {root}: expected {FOLDER}/ with images/ and the official lists. "
            f"`fscil-bench data prepare {NAME} --data-root {root}` gets it"
        )
    classes = _column(folder / "classes.txt")
    paths = _column(folder / "images.txt")
    labels = [int(number) - 1 for number in _column(folder / "image_class_labels.txt")]
    splits = ["train" if flag == "1" else "test" for flag in _column(folder / "train_test_split.txt")]
    if not len(paths) == len(labels) == len(splits):
        raise FscilError(f"the lists in {folder} are of different lengths: unpack the official archive anew")
    ids = [f"{split}/{path}" for split, path in zip(splits, paths, strict=True)]
    files = [folder / "images" / path for path in paths]
    return in_order(
        NAME, classes, ids, labels, lambda rows, view: decode_files([files[r] for r in rows], view, problems)
    )


def _column(path: Path) -> list[str]:
    """The second word of every line; the first is a running number."""
    try:
        return [line.split()[1] for line in path.read_text().splitlines() if line.strip()]
    except (OSError, IndexError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the list {path} ({error}): unpack the official archive anew") from error
