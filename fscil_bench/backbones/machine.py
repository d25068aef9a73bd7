"""Where training and extraction run: device, precision, processes, through Lightning Fabric."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fscil_bench.errors import UsageError

if TYPE_CHECKING:
    import torch
    from lightning_fabric import Fabric


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Results may differ from one to another in the last digits."""

    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    threads: int | None = None  # of each process

    @property
    def memory_format(self) -> "torch.memory_format":
        """How images lie in memory: convolutions in half precision are faster with the channels of a pixel together."""
        import torch

        return torch.channels_last if "mixed" in self.precision else torch.contiguous_format

    def fabric(self) -> "Fabric":
        from lightning_fabric import Fabric
        from lightning_fabric.utilities.exceptions import MisconfigurationException

        try:
            return Fabric(
                accelerator=self.device,
                devices=self.devices,
                precision=self.precision,  # type: ignore[arg-type]
                strategy="ddp_spawn" if self.devices > 1 else "auto",
            )
        except (RuntimeError, ValueError, MisconfigurationException) as error:
            asked = f"--device {self.device} --devices {self.devices} --precision {self.precision}"
            raise UsageError(f"this machine cannot do {asked}: {error}") from error
