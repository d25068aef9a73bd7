"""What the rest of the harness knows of a dataset: which images there are, and their pixels."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fscil_bench.errors import FscilError, UsageError

Rows = npt.NDArray[np.int64]
SPLITS = ("train", "test")


@dataclass(frozen=True)
class ImageSet:
    """All images of a dataset, train before test, then by class, then by id.

    An id is `<split>/<class>/<official file name>`: it names an image across copies of the dataset.
    """

    dataset: str
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    labels: Rows  # [N], index into classes
    is_test: npt.NDArray[np.bool_]  # [N]
    read: Callable[[Rows], Tensor]  # rows -> uint8 [n, 3, H, W]

    def rows(self, split: str, classes: Iterable[int]) -> Rows:
        """The rows of one split that belong to the given classes."""
        wanted = np.isin(self.labels, list(classes)) & (self.is_test == (split == "test"))
        return np.flatnonzero(wanted)


def in_order(
    dataset: str, classes: Sequence[str], ids: Sequence[str], labels: Sequence[int], read: Callable[[Rows], Tensor]
) -> ImageSet:
    """The `ImageSet` of images listed in any order; `read` takes positions in the given order."""
    is_test = np.array([i.startswith("test/") for i in ids], dtype=bool)
    label = np.asarray(labels, dtype=np.int64)
    order = np.lexsort((np.asarray(ids), label, is_test))
    return ImageSet(
        dataset=dataset,
        classes=tuple(classes),
        ids=tuple(ids[i] for i in order),
        labels=label[order],
        is_test=is_test[order],
        read=lambda rows: read(order[rows]),
    )


def require_class_folders(folder: Path, classes: Sequence[str], suffix: str) -> None:
    """Every class must have a folder in both splits."""
    missing = [f"{s}/{c}" for s in SPLITS for c in classes if not (folder / s / c).is_dir()]
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise UsageError(f"{folder} lacks class folders: {shown}. Expected {folder}/<train|test>/<class>/*{suffix}")


def list_folder(folder: Path, classes: Sequence[str], suffix: str) -> tuple[list[str], list[int]]:
    """Ids and labels of the images in `<folder>/<split>/<class>/`."""
    ids: list[str] = []
    labels: list[int] = []
    for split in SPLITS:
        for label, name in enumerate(classes):
            found = sorted(p.name for p in (folder / split / name).glob("*") if p.suffix.lower() == suffix)
            ids += [f"{split}/{name}/{file}" for file in found]
            labels += [label] * len(found)
    return ids, labels


def decode_files(paths: Sequence[Path], size: int, problems: list[str] | None = None) -> Tensor:
    """The pixels of square image files as one uint8 tensor [n, 3, size, size], decoded in parallel.

    A file that cannot be used is an error; with a list of `problems` it is entered there and its pixels are black.
    """
    from PIL import Image

    pixels = np.zeros((len(paths), size, size, 3), dtype=np.uint8)

    def decode(row: int) -> None:
        path = paths[row]
        try:
            with Image.open(path) as image:
                array = np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError) as error:
            raise FscilError(f"cannot read image {path} ({error}): replace it; `data verify` lists all") from error
        if array.shape != (size, size, 3):
            raise FscilError(f"image {path} is {array.shape[1]}x{array.shape[0]} pixels, expected {size}x{size}")
        pixels[row] = array

    def attempt(row: int) -> str | None:
        try:
            decode(row)
        except FscilError as error:
            if problems is None:
                raise
            return str(error)
        return None

    with ThreadPoolExecutor() as pool:
        found = [problem for problem in pool.map(attempt, range(len(paths))) if problem is not None]
    if problems is not None:
        problems += found
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
