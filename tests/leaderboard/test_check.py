"""A leaderboard on a toy backbone: a check that bites."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

METHODS = Path(__file__).parents[2] / "methods"

pytestmark = pytest.mark.usefixtures("few_methods")


def test_check_holds_on_a_fresh_board(board, cli):
    done = cli("check")
    assert done.code == 0, done.out
    assert "4 rows hold, 0 do not" in done.out
    assert cli("check", "--quick").code == 0


def test_a_moved_number_is_named_in_both_directions(board, cli, change, shift):
    path = next(board.rglob("simteen.fscil.json"))
    for offset, sign in ((0.006, "-0.01"), (-0.006, "+0.01")):
        change(path, lambda record, d=offset: shift(record, d))
        done = cli("check", "--json")
        assert done.code == 1
        moved = [row for row in json.loads(done.out)["rows"] if not row["holds"]]
        assert [row["method"] for row in moved] == ["simteen"]
        assert moved[0]["moved"][0]["metric"] == "avg_acc"
        assert moved[0]["changed"] == []
        assert sign in cli("check").out
        change(path, lambda record, d=offset: shift(record, -d))


@pytest.mark.parametrize(("session", "noticed"), [(0, True), (2, True), (3, False)])
def test_a_quick_check_of_a_costly_method_is_of_its_first_sessions(board, cli, monkeypatch, session, noticed, change):
    def edit(record):
        record["draws"]["metrics"]["by_session"]["avg_acc"][0][session] += 1

    monkeypatch.setattr("fscil_bench_methods.teen.TEEN.costly", ("fsl",))
    assert cli("check", "--quick", "--method", "teen").code == 0
    change(next(board.rglob("teen.fscil.json")), edit)
    assert cli("check", "--quick", "--method", "teen").code == int(noticed)
    assert cli("check", "--method", "teen").code == 1


@pytest.mark.parametrize("group", ["summary", "paper"])
def test_derived_numbers_are_checked_too(board, cli, group, change):
    def edit(record):
        if group == "summary":
            record["summary"]["hmean"]["mean"] += 1
        else:
            values = record["draws"]["metrics"]["paper"]["hmean"][3]
            values[1:] = [value + 1 for value in values[1:]]

    change(next(board.rglob("simteen.fscil.json")), edit)
    done = cli("check", "--method", "simteen")
    assert done.code == 1
    assert "-1.00" in done.out


def test_a_number_within_tolerance_holds(board, cli, change, shift):
    change(next(board.rglob("simteen.fscil.json")), lambda record: shift(record, 0.004))
    assert cli("check", "--method", "simteen").code == 0


def test_a_stale_table_fails(board, cli):
    table = board / "cifar100.md"
    table.write_text(table.read_text().replace("teen", "tean", 1))
    done = cli("check")
    assert done.code == 1
    assert "cifar100.md is not what the records give" in done.out
    assert "1 table stale" in done.error_line


def test_other_predictions_fail(board, cli):
    from safetensors.numpy import load_file, save_file

    path = next(board.rglob("teen.fscil.predictions.safetensors"))
    predictions = load_file(path)["predictions"].copy()
    predictions[-1, :3] = (predictions[-1, :3] + 1) % 100
    save_file({"predictions": predictions}, path, {"fscil-bench": '{"draw": "random:0"}'})
    done = cli("check")
    assert done.code == 1
    assert "3 predictions of draw random:0 differ from those stored" in done.out


def edited_methods(tmp_path, file, old, new):
    """A copy of the methods with one edit, that Python finds before the installed ones."""
    package = tmp_path / "edited" / "fscil_bench_methods"
    shutil.copytree(METHODS, package, ignore=shutil.ignore_patterns("__pycache__"))
    source = (package / file).read_text()
    assert old in source
    (package / file).write_text(source.replace(old, new))
    return str(package.parent)


def check_with(path):
    code = f"import sys; sys.path.insert(0, {path!r}); from fscil_bench.cli import entry; entry()"
    args = [sys.executable, "-c", code, "check", "--json"]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    return done.returncode, {row["method"]: row for row in json.loads(done.stdout)["rows"]}


def test_a_deliberate_change_fails_and_names_the_rows_that_moved(board, tmp_path):
    code, rows = check_with(edited_methods(tmp_path, "teen.py", "setting(16.0,", "setting(15.0,"))
    assert code == 1
    moved = {"teen", "teen variant=paper"}  # one default for both
    assert {name for name, row in rows.items() if not row["holds"]} == moved
    for name in moved:
        assert rows[name]["changed"] == ["setting tau: 16.0 -> 15.0", "code"]
        assert rows[name]["moved"]


def test_a_changed_formula_is_named_as_code(board, tmp_path):
    code, rows = check_with(edited_methods(tmp_path, "teen.py", "(1 - self.shift_weight) * new", "0.2 * new"))
    assert code == 1
    assert rows["teen"]["changed"] == ["code"]
    assert rows["protonet"]["holds"]
    assert rows["protonet"]["changed"] == []


def test_a_comment_only_change_passes(board, tmp_path):
    code, rows = check_with(edited_methods(tmp_path, "teen.py", "# eq. 6", "# equation six, in other words"))
    assert code == 0
    assert all(row["holds"] and row["changed"] == [] for row in rows.values())


def test_update_mends_what_check_complains_of(board, cli):
    next(board.rglob("teen.fscil.predictions.safetensors")).unlink()
    assert cli("check", "--quick").code == 1
    assert "1 measured" in cli("leaderboard", "update", "--backbone", "toy", "--workers", 1).out
    assert cli("check", "--quick").code == 0


def test_check_without_records_says_so(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    done = cli("check", "--root", tmp_path / "empty")
    assert done.code == 2
    assert "no records to check" in done.error_line
    nowhere = cli("check", "--root", tmp_path / "none")
    assert nowhere.code == 2
    assert "name one that `fscil-bench leaderboard update` has written, or leave --root out" in nowhere.error_line
