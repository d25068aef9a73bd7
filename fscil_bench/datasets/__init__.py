"""Images: readers of the official layouts and of plain image folders, all giving one `ImageSet`.

A dataset is a module here with three functions, `open_images(root)`, `verify(root)` and `prepare(root, archive)`, and
its name in `DATASETS`; where the standard draw lists indices into an archive, a fourth, `official_train_ids(root)`,
explains them. Nothing is imported before it is needed.
"""

import importlib
import os
from pathlib import Path
from types import ModuleType

from fscil_bench.errors import UsageError, unknown_name

DATASETS = {name: f"fscil_bench.datasets.{name}" for name in ("cifar100", "cub200", "miniimagenet")}


def reader(name: str) -> ModuleType:
    """The module that reads dataset `name`."""
    if name not in DATASETS:
        raise unknown_name("dataset with a reader", name, DATASETS)
    return importlib.import_module(DATASETS[name])


def find_root(given: Path | None) -> Path | None:
    """The folder that holds the datasets: `--data-root`, else `$FSCIL_BENCH_DATA`, else none."""
    if given is not None:
        return given
    named = os.environ.get("FSCIL_BENCH_DATA")
    return Path(named) if named else None


def require_root(given: Path | None) -> Path:
    root = find_root(given)
    if root is None:
        raise UsageError("no data root: pass --data-root DIR or set FSCIL_BENCH_DATA to the folder with your datasets")
    if not root.is_dir():
        raise UsageError(f"data root {root} is not a folder: pass --data-root DIR with the folder of your datasets")
    return root
