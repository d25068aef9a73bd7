"""How long a sweep of 147 points takes on the shipped CIFAR-100 bank, over 20 draws, start of Python included.

pytest benchmarks/test_sweep.py
"""

import subprocess
import sys

LIMIT = 60.0  # seconds, on two cores
GRID = ("--grid", "shift_weight=0:1:0.05", "--grid", "tau=1,2,4,8,16,32,64")


def test_sweep_of_147_points(benchmark, tmp_path):
    places = (tmp_path / str(i) for i in range(10))

    def sweep() -> None:
        out = str(next(places))  # a fresh one each time: finished points would be read, not measured
        command = ["-m", "fscil_bench", "sweep", "--method", "teen", "--dataset", "cifar100", *GRID, "--out", out]
        subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=tmp_path)

    benchmark.pedantic(sweep, rounds=2)
    assert benchmark.stats["min"] < LIMIT
