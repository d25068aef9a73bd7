"""What a result may depend on besides its inputs: versions, device, threads. No host, user or path."""

import platform
from typing import Any

import numpy as np
import torch

from fscil_bench import __version__


def environment(**facts: Any) -> dict[str, Any]:
    return {
        "fscil_bench": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        **{key: value for key, value in facts.items() if value is not None},
    }
