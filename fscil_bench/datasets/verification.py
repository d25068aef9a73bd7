"""What `data verify` found: counts by class and split, and a list of everything that is not as it should be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fscil_bench.datasets.images import ImageSet


@dataclass
class Verification:
    dataset: str
    counts: dict[str, dict[str, int]]  # class -> split -> images
    problems: list[str] = field(default_factory=list)

    def total(self, split: str) -> int:
        return sum(by_split[split] for by_split in self.counts.values())


def count_images(images: ImageSet, expected: Mapping[str, int]) -> Verification:
    """Count the images of every class and split; a count other than `expected` (by split) is a problem."""
    report = Verification(images.dataset, {name: {} for name in images.classes})
    for split, wanted in expected.items():
        of_split = images.labels[images.is_test == (split == "test")]
        for name, count in zip(images.classes, np.bincount(of_split, minlength=len(images.classes)), strict=True):
            report.counts[name][split] = int(count)
            if count != wanted:
                report.problems.append(f"{split}/{name}: {count} images, expected {wanted}")
    return report
