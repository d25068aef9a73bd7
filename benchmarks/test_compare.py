"""How long `compare` takes beyond starting Python and importing torch: measuring everything, and from records.

pytest benchmarks/test_compare.py
"""

import json
import shutil
import statistics
import subprocess
import sys
import time

import pytest

from fscil_bench.backbones.store import find_backbone
from fscil_bench.protocols import load_protocol


@pytest.fixture
def unknown_backbone(tmp_path):
    """A copy of the shipped backbone under another id: nothing has been recorded on it."""
    shipped = find_backbone(load_protocol("cifar100").default_backbone)
    folder = tmp_path / "copy"
    shutil.copytree(shipped.folder, folder)
    (folder / "card.json").write_text(json.dumps({**shipped.card, "id": "copy"}))
    return folder


@pytest.mark.parametrize(("recorded", "limit"), [(False, 30.0), (True, 2.0)], ids=["from nothing", "from records"])
def test_compare_beyond_importing_torch(benchmark, tmp_path, unknown_backbone, recorded, limit):
    compare = ["-m", "fscil_bench", "compare", "--dataset", "cifar100", "--backbone", str(unknown_backbone)]

    def timed(*args: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, *args], check=True, capture_output=True, cwd=tmp_path)
        return time.perf_counter() - started

    beyond = []

    def once() -> None:
        if not recorded:
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        beyond.append(timed(*compare) - timed("-c", "import torch"))

    benchmark.pedantic(once, rounds=3, warmup_rounds=1)
    seconds = statistics.median(beyond[1:])
    benchmark.extra_info["seconds_beyond_import"] = seconds
    print(f"\ncompare {'from records' if recorded else 'from nothing'}: {seconds:.2f} s beyond `import torch`")
    assert seconds < limit
