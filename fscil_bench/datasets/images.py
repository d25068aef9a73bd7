"""What the rest of the harness knows of a dataset: which images there are, and their pixels."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from fscil_bench.errors import FscilError, UsageError

Rows = npt.NDArray[np.int64]
SPLITS = ("train", "test")
INTERPOLATION = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class View:
    """How a picture of any size becomes a square of pixels: scaled, then the middle cut out."""

    size: int  # of the square
    resize: int | None = None  # of the shorter side before the cut; None: the picture is that square already
    squash: bool = False  # scale both sides to `resize`, whatever the picture's shape
    interpolation: str = "bilinear"

    def of(self, picture: Image.Image) -> Image.Image:
        """The square that this view shows of a picture (scaled with antialiasing, as torchvision's Resize)."""
        if self.resize is not None:
            scale = self.resize / min(picture.size)
            sides = [self.resize if self.squash else max(self.resize, int(scale * side)) for side in picture.size]
            if picture.size != tuple(sides):
                picture = picture.resize((sides[0], sides[1]), INTERPOLATION[self.interpolation])
        width, height = picture.size
        if self.resize is None and (width, height) != (self.size, self.size):
            raise ValueError(f"it is {width}x{height} pixels, expected {self.size}x{self.size}")
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        return picture.crop((left, top, left + self.size, top + self.size))


class Pictures(NamedTuple):
    """Pixels as seen through a view, and the shapes the pictures had."""

    pixels: Tensor  # uint8 [n, 3, size, size]
    aspect: Tensor  # [n], width / height


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
    read: Callable[[Rows, View], Pictures]

    def rows(self, split: str, classes: Iterable[int]) -> Rows:
        """The rows of one split that belong to the given classes."""
        wanted = np.isin(self.labels, list(classes)) & (self.is_test == (split == "test"))
        return np.flatnonzero(wanted)

    def take(self, rows: Rows) -> "ImageSet":
        """Some of the images, and the classes they are of."""
        kept = np.sort(rows)
        present = np.unique(self.labels[kept])
        return ImageSet(
            dataset=self.dataset,
            classes=tuple(self.classes[label] for label in present),
            ids=tuple(self.ids[row] for row in kept),
            labels=np.searchsorted(present, self.labels[kept]),
            is_test=self.is_test[kept],
            read=lambda rows, view: self.read(kept[rows], view),
        )


def in_order(
    dataset: str,
    classes: Sequence[str],
    ids: Sequence[str],
    labels: Sequence[int],
    read: Callable[[Rows, View], Pictures],
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
        read=lambda rows, view: read(order[rows], view),
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


def decode_files(paths: Sequence[Path], view: View, problems: list[str] | None = None) -> Pictures:
    """What a view shows of image files, decoded in parallel.

    A file that cannot be used is an error; with a list of `problems` it is entered there and its pixels are black.
    """

    def load(row: int) -> Image.Image:
        with Image.open(paths[row]) as image:
            return image.convert("RGB")

    return _view_all(len(paths), load, lambda row: str(paths[row]), view, problems)


def view_arrays(arrays: npt.NDArray[np.uint8], view: View) -> Pictures:
    """What a view shows of square images in memory, [n, 3, h, w]."""
    if view == View(arrays.shape[-1]):
        return Pictures(torch.from_numpy(arrays), torch.ones(len(arrays)))
    return _view_all(len(arrays), lambda row: Image.fromarray(arrays[row].transpose(1, 2, 0)), str, view, None)


def _view_all(
    count: int,
    load: Callable[[int], Image.Image],
    name: Callable[[int], str],
    view: View,
    problems: list[str] | None,
) -> Pictures:
    pixels = np.zeros((count, view.size, view.size, 3), dtype=np.uint8)
    aspect = np.ones(count, dtype=np.float32)

    def attempt(row: int) -> str | None:
        try:
            picture = load(row)
            aspect[row] = picture.width / picture.height
            pixels[row] = np.asarray(view.of(picture))
        except (OSError, ValueError, SyntaxError) as error:
            problem = f"cannot use image {name(row)} ({error}): replace it; `data verify` lists all such"
            if problems is None:
                raise FscilError(problem) from error
            return problem
        return None

    with ThreadPoolExecutor() as pool:
        found = [problem for problem in pool.map(attempt, range(count)) if problem is not None]
    if problems is not None:
        problems += found
    return Pictures(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(aspect))
