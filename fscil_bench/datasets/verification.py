"""What `data verify` found: counts by class and split, and a list of everything that is not as it should be."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np

from fscil_bench.datasets.images import SPLITS, ImageSet


@dataclass
class Verification:
    dataset: str
    counts: dict[str, dict[str, int]]  # class -> split -> images
    compared: str = "counts"  # what was held against the official release
    problems: list[str] = field(default_factory=list)

    def total(self, split: str) -> int:
        return sum(by_split[split] for by_split in self.counts.values())


def released(dataset: str) -> dict[str, Any]:
    """What is known of the official release of a dataset: the JSON file beside its reader."""
    return dict(json.loads((resources.files("fscil_bench.datasets") / f"{dataset}.json").read_text()))


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]


def count_images(images: ImageSet, expected: Callable[[str, str], int]) -> Verification:
    """Count the images of every split and class; a count other than `expected` is a problem."""
    report = Verification(images.dataset, {name: {} for name in images.classes})
    for split in SPLITS:
        of_split = images.labels[images.is_test == (split == "test")]
        for name, count in zip(images.classes, np.bincount(of_split, minlength=len(images.classes)), strict=True):
            report.counts[name][split] = int(count)
            if count != (wanted := expected(split, name)):
                report.problems.append(f"{split}/{name}: {count} images, expected {wanted}")
    return report
