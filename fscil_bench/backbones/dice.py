"""Random numbers for one global batch, of which a process sees its share."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dice:
    """Rolls one number for each image of the global batch and returns those of the images `share`."""

    generator: torch.Generator
    total: int
    share: slice = field(default_factory=lambda: slice(None))

    def uniform(self) -> Tensor:
        """Numbers in [0, 1)."""
        return torch.rand(self.total, generator=self.generator)[self.share]

    def integers(self, count: int) -> Tensor:
        """Whole numbers 0 .. count - 1."""
        return torch.randint(count, (self.total,), generator=self.generator)[self.share]

    def signs(self) -> Tensor:
        """-1 or +1."""
        return self.integers(2) * 2 - 1
