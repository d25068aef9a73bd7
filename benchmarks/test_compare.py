"""How long `compare` takes beyond starting Python and importing torch: measuring everything, and from records.

pytest benchmarks/test_compare.py
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from fscil_bench.backbones.store import bank_name, find_backbone
from fscil_bench.banks import open_bank, write_bank
from fscil_bench.files import sha256_file
from fscil_bench.protocols import load_protocol


@pytest.fixture
def unknown_backbone(tmp_path):
    """The shipped features in a bank of another checksum: nothing has been recorded on it."""
    shipped = find_backbone(load_protocol("cifar100").default_backbone)
    path = tmp_path / "copy" / bank_name("cifar100")
    write_bank(path, replace(open_bank(shipped, "cifar100"), metadata={"backbone": "copy"}))
    card = {**shipped.card, "files": {path.name: sha256_file(path)}}
    (path.parent / "card.json").write_text(json.dumps(card))
    return path.parent


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
