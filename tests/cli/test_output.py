"""Where the output goes: a full disk, a closed stream, a reader that leaves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LISTING = [sys.executable, "-m", "fscil_bench", "ls", "methods"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line_and_exit_1():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(LISTING, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: cannot write to where the output goes: No space left")
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
def test_a_closed_stream_is_nobodys_bug():
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *LISTING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "bug" not in done.stderr
