"""`python -m fscil_bench` is `fscil-bench`."""

from fscil_bench.cli import entry

if __name__ == "__main__":
    entry()
