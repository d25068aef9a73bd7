"""Files are whole or absent."""

import json
import subprocess
import sys

import pytest

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import (
    canonical_json,
    exclusive,
    json_bytes,
    read_json,
    require_writable,
    write_atomically,
    write_json,
)


def test_a_failed_write_leaves_the_old_file_and_no_trace(tmp_path):
    path = tmp_path / "place" / "a.json"
    write_json(path, {"old": 1})

    def fails(temporary):
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(FscilError, match="No space left"):
        write_atomically(path, fails)
    assert read_json(path, "file") == {"old": 1}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_canonical_json_has_one_form():
    assert canonical_json({"b": 1, "a": [1.5, "é"]}) == '{"a":[1.5,"é"],"b":1}'.encode()


def test_json_is_laid_out_for_people_and_still_json():
    value = {"a": [1, 2.5, None], "b": [[1], [2]], "c": {}, "d": [{"é": "x"}], "e": []}
    text = json_bytes(value).decode()
    assert json.loads(text) == value
    assert ' "a": [1, 2.5, null],\n' in text
    assert len(text.splitlines()) == 14


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write to .* --out"):
        require_writable(tmp_path / "file" / "runs", "--out")


def test_a_lock_excludes_other_processes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from fscil_bench.files import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'busy'): print('in')"
    )
    path = tmp_path / "place" / "x.lock"

    def try_it():
        return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)

    with exclusive(path, "busy"):
        blocked = try_it()
        assert blocked.returncode != 0
        assert "another process is busy" in blocked.stderr
    assert try_it().stdout == "in\n"
    assert list(path.parent.iterdir()) == []
