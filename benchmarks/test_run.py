"""How long `run` takes beyond starting Python and importing torch, on the shipped CIFAR-100 bank.

pytest benchmarks/test_run.py
"""

import statistics
import subprocess
import sys
import time

import pytest

ROUNDS = 5


@pytest.mark.parametrize(
    ("draws", "limit"), [(("--draw", "random:0"), 1.0), (("--draws", "100"), 5.0)], ids=["1", "100"]
)
def test_run_beyond_importing_torch(benchmark, tmp_path, draws, limit):
    run = ["-m", "fscil_bench", "run", "--method", "teen", "--dataset", "cifar100", "--out", str(tmp_path), *draws]

    def timed(*args: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, *args], check=True, capture_output=True, cwd=tmp_path)
        return time.perf_counter() - started

    beyond = []
    benchmark.pedantic(lambda: beyond.append(timed(*run) - timed("-c", "import torch")), rounds=ROUNDS, warmup_rounds=1)
    seconds = statistics.median(beyond[1:])
    benchmark.extra_info["seconds_beyond_import"] = seconds
    print(f"\nrun {' '.join(draws)}: {seconds:.2f} s beyond `import torch`")
    assert seconds < limit
