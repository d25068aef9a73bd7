"""A leaderboard on a toy backbone: tables, comparison, and a check that bites."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fscil_bench.backbones.store import home
from fscil_bench.leaderboard.measuring import measure_rows, tasks_for
from fscil_bench.leaderboard.rows import load_rows
from fscil_bench.leaderboard.tables import ranked, render_tables

METHODS = Path(__file__).parents[2] / "methods"


@pytest.fixture(autouse=True)
def few_methods(quick, monkeypatch):
    """A few quick methods stand for all that could be measured."""
    for module in ("fscil_bench.cli.leaderboard", "fscil_bench.leaderboard.measuring"):
        monkeypatch.setattr(f"{module}.loadable", lambda: list(quick))


@pytest.fixture
def installed(measured):
    """A toy backbone in the user's store, so that its id is known."""
    shutil.copytree(measured / "home", home())


@pytest.fixture
def board(measured, installed):
    """A leaderboard on the toy backbone: its root."""
    shutil.copytree(measured / "leaderboards", "leaderboards")
    return Path("leaderboards")


def change(path, edit):
    """Rewrite a JSON file."""
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def test_every_method_and_variant_gets_a_row(board, quick):
    loaded = load_rows([(board / "records", False)])
    assert loaded.problems == []
    assert {row.method for row in loaded.rows} == set(quick)
    assert "teen variant=paper" in {row.label for row in loaded.rows}
    assert all(row.complete for row in loaded.rows)


def test_tables_say_what_is_needed_to_judge(board):
    text = (board / "cifar100.md").read_text()
    assert "### Paired differences from protonet, same draws" in text
    assert "Δ NAcc (95 %)" in text
    assert "Δ BAcc (95 %)" in text
    assert "| Decoupled-Cosine | TEEN paper (NeurIPS 2023) | 74.55 |" in text
    assert "HMean and NAcc of the same session imply 57.07" in text
    assert "pretraining: none" in text
    header = (board / "cifar100.csv").read_text().splitlines()[0]
    assert {"hmean_low", "hmean_standard", "5w1s", "overlap", "selection", "privileges"} <= set(header.split(","))
    assert {row["complete"] for row in json.loads((board / "cifar100.json").read_text())} == {True}
    assert "seconds" not in (board / "cifar100.csv").read_text()
    assert "fit_base_seconds" in (board / "costs.csv").read_text()


def test_tables_rebuild_byte_for_byte(board, cli, installed, quick):
    before = {path.name: path.read_bytes() for path in board.glob("*.*")}
    assert len(before) == 4
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            other = Path(f"threads-{count}")
            measure_rows(tasks_for(quick, None, _backbones()), other / "records", workers=1)
            rebuilt = render_tables(load_rows([(other / "records", False)]).rows)
            assert {k: v.encode() for k, v in rebuilt.items() if k != "costs.csv"} == {
                k: v for k, v in before.items() if k != "costs.csv"
            }
    finally:
        torch.set_num_threads(threads)
    (board / "cifar100.md").unlink()
    assert cli("leaderboard", "update", "--tables-only").code == 0
    assert {path.name: path.read_bytes() for path in board.glob("*.*")} == before


def _backbones():
    from fscil_bench.backbones.store import find_backbone

    return [find_backbone("toy")]


def test_update_leaves_unchanged_records_alone(board, cli):
    stamps = {path: path.stat().st_mtime_ns for path in board.rglob("*.*")}
    done = cli("leaderboard", "update", "--backbone", "toy", "--workers", 1)
    assert "4 unchanged" in done.out
    assert {path: path.stat().st_mtime_ns for path in board.rglob("*.*")} == stamps


def test_update_of_missing_rows_measures_those_alone(board, cli):
    update = ("leaderboard", "update", "--backbone", "toy", "--workers", 1, "--missing", "--kind", "fscil")
    assert "nothing measured" in cli(*update).out
    row = {name: next(board.rglob(f"{name}.fscil.json")) for name in ("protonet", "simteen", "teen")}
    whole = {name: json.loads(path.read_text())["draws"] for name, path in row.items()}
    row["protonet"].unlink()
    change(
        row["simteen"], lambda record: record["method"].update(costly=True)
    )  # a row of when it was: 10 draws were full
    change(row["teen"], lambda record: _shift(record, 1.0))  # wrong, but there
    assert "2 measured" in cli(*update).out
    assert {name for name, path in row.items() if json.loads(path.read_text())["draws"] == whole[name]} == {
        "protonet",
        "simteen",
    }


def test_processes_measure_what_one_measures(board, installed):
    measure_rows(tasks_for(["protonet", "teen"], None, _backbones()), Path("parallel"), workers=2)
    for path in Path("parallel").rglob("*.json"):
        ours = json.loads(path.read_text())
        theirs = json.loads((board / "records" / path.relative_to("parallel")).read_text())
        assert ours["draws"] == theirs["draws"]


def test_check_holds_on_a_fresh_board(board, cli):
    done = cli("check")
    assert done.code == 0, done.out
    assert "4 rows hold, 0 do not" in done.out
    assert cli("check", "--quick").code == 0


def test_a_moved_number_is_named_in_both_directions(board, cli):
    path = next(board.rglob("simteen.fscil.json"))
    for offset, sign in ((0.006, "-0.01"), (-0.006, "+0.01")):
        change(path, lambda record, d=offset: _shift(record, d))
        done = cli("check", "--json")
        assert done.code == 1
        moved = [row for row in json.loads(done.out)["rows"] if not row["holds"]]
        assert [row["method"] for row in moved] == ["simteen"]
        assert moved[0]["moved"][0]["metric"] == "avg_acc"
        assert moved[0]["changed"] == []
        assert sign in cli("check").out
        change(path, lambda record, d=offset: _shift(record, -d))


def _shift(record, offset):
    record["draws"]["metrics"]["by_session"]["avg_acc"][3][5] += offset


@pytest.mark.parametrize(("session", "noticed"), [(0, True), (2, True), (3, False)])
def test_a_quick_check_of_a_costly_method_is_of_its_first_sessions(board, cli, monkeypatch, session, noticed):
    def edit(record):
        record["draws"]["metrics"]["by_session"]["avg_acc"][0][session] += 1

    monkeypatch.setattr("fscil_bench_methods.teen.TEEN.costly", ("fsl",))
    assert cli("check", "--quick", "--method", "teen").code == 0
    change(next(board.rglob("teen.fscil.json")), edit)
    assert cli("check", "--quick", "--method", "teen").code == int(noticed)
    assert cli("check", "--method", "teen").code == 1


@pytest.mark.parametrize("group", ["summary", "paper"])
def test_derived_numbers_are_checked_too(board, cli, group):
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


def test_a_number_within_tolerance_holds(board, cli):
    change(next(board.rglob("simteen.fscil.json")), lambda record: _shift(record, 0.004))
    assert cli("check", "--method", "simteen").code == 0


def test_a_stale_table_fails(board, cli):
    table = board / "cifar100.md"
    table.write_text(table.read_text().replace("teen", "tean", 1))
    done = cli("check")
    assert done.code == 1
    assert "cifar100.md is not what the records give" in done.out
    assert "1 tables are stale" in done.error_line


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
    assert {name for name, row in rows.items() if not row["holds"]} == {"teen"}
    assert rows["teen"]["changed"] == ["setting tau: 16.0 -> 15.0", "code"]
    assert rows["teen"]["moved"]


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


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda r: r["protocol"].update(sha256="0"), "another cifar100 split"),
        (lambda r: r["backbone"].update(bank_sha256="0"), "another bank of toy"),
        (lambda r: r.update(schema="fscil-bench/record/0"), "not a record of schema"),
        (lambda r: r["draws"]["names"].pop(), "100 values for 99 draws"),
        (lambda r: r["draws"]["metrics"]["by_session"].pop("hmean"), "damaged (KeyError: 'hmean')"),
        (lambda r: r["draws"]["metrics"]["by_session"]["hmean"][0].pop(), "hmean does not have 9 sessions"),
        (lambda r: r.pop("standard"), "damaged (KeyError: 'standard')"),
        (
            lambda r: r["draws"]["metrics"]["by_session"]["hmean"][0].__setitem__(1, "x"),
            "hmean holds what is no number",
        ),
        (lambda r: r["method"].update(settings=[]), "damaged (AttributeError"),
        (lambda r: r["backbone"].pop("augmentation"), "damaged (KeyError: 'augmentation')"),
        (lambda r: r["protocol"].update(name="imagenet"), "unknown dataset 'imagenet'"),
        (lambda r: r.pop("backbone"), "damaged (KeyError: 'backbone')"),
    ],
)
def test_records_that_do_not_fit_are_named_and_the_rest_shown(board, cli, edit, message):
    change(next(board.rglob("simteen.fscil.json")), edit)
    done = cli("check")
    assert done.code == 1
    assert message in done.out
    assert "3 rows hold" in done.out
    shutil.move(board / "records", "runs")
    shown = cli("compare", "protonet", "teen", "--backbone", "toy")
    assert shown.code == 0, shown.err
    assert message in shown.err
    assert "| teen (yours) |" in shown.out


def test_a_damaged_record_is_named(board, cli):
    path = next(board.rglob("simteen.fscil.json"))
    path.write_text(path.read_text()[:500])
    done = cli("check")
    assert done.code == 1
    assert "simteen.fscil.json is damaged" in done.out


def test_a_failing_method_becomes_a_row_and_recovers(board, cli, monkeypatch):
    from fscil_bench_methods.simteen import SimTEEN

    def breaks(*_):
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(SimTEEN, "calibrate", breaks)
        done = cli("leaderboard", "update", "--backbone", "toy", "--workers", 1)
        assert done.code == 1
        assert "1 methods failed" in done.error_line
    assert "simteen (failed: RuntimeError: no luck)" in (board / "cifar100.md").read_text()
    assert cli("check").code == 1
    assert cli("leaderboard", "update", "--backbone", "toy", "--workers", 1).code == 0
    assert "failed:" not in (board / "cifar100.md").read_text()


def test_incomplete_and_overlapping_rows_are_ranked_apart(board):
    rows = load_rows([(board / "records", False)]).rows
    best = ranked(rows)[0]
    best.record["draws"]["names"] = best.record["draws"]["names"][:50]
    assert ranked(rows)[-1] is best
    other = ranked(rows)[0]
    other.record["backbone"]["overlap"] = {"kind": "images", "new_classes": []}
    assert ranked(rows)[-1] is other
    text = render_tables(rows)["cifar100.md"]
    assert text.count(f"| {best.label} (incomplete) |") == 1  # listed, but in no table of means
    assert "# Ranked apart: backbones whose pretraining has seen new classes" in text


def test_compare_measures_what_has_no_record(installed, cli):
    done = cli("compare", "protonet", "teen", "--backbone", "toy")
    assert done.code == 0, done.err
    assert "minus protonet" in done.out
    assert Path("runs/cifar100/toy/teen.fscil.json").is_file()
    data = json.loads(cli("compare", "protonet", "teen", "--backbone", "toy", "--json").out)
    assert data["baseline"] == "protonet"
    assert {row["label"] for row in data["rows"]} == {"protonet", "teen", "teen variant=paper"}
    teen = next(row for row in data["rows"] if row["label"] == "teen")
    assert teen["difference"]["new_acc"]["n"] == 100
    assert 0 <= teen["difference"]["new_acc"]["p_holm"] <= 1
    assert teen["own"] is True


def test_compare_brings_the_declared_baseline_along(installed, cli):
    done = cli("compare", "simteen", "--backbone", "toy")
    assert "minus protonet" in done.out
    composed = cli("compare", "simteen+teen", "--backbone", "toy")
    assert "minus simteen" in composed.out


def test_compare_measures_anew_what_older_code_made(installed, cli):
    cli("compare", "protonet", "--backbone", "toy")
    path = Path("runs/cifar100/toy/protonet.fscil.json")
    before = path.read_text()
    change(path, lambda record: record["method"].update(code_sha256="0"))
    cli("compare", "protonet", "--backbone", "toy")
    assert json.loads(path.read_text())["draws"] == json.loads(before)["draws"]
    assert json.loads(path.read_text())["method"] == json.loads(before)["method"]


def test_update_mends_what_check_complains_of(board, cli):
    next(board.rglob("teen.fscil.predictions.safetensors")).unlink()
    assert cli("check", "--quick").code == 1
    assert "1 measured" in cli("leaderboard", "update", "--backbone", "toy", "--workers", 1).out
    assert cli("check", "--quick").code == 0


def test_update_measures_rows_with_other_settings_too(board, cli):
    args = ("--dataset", "cifar100", "--backbone", "toy", "--out", board / "records")
    assert cli("run", "--method", "simteen+teen", "--set", "teen.tau=4", *args).code == 0
    path = next(board.rglob("simteen+teen-*.fscil.json"))
    change(path, lambda record: _shift(record, 1.0))
    assert "1 measured" in cli("leaderboard", "update", "--backbone", "toy", "--workers", 1).out
    assert cli("check").code == 0


def test_compare_shows_all_cheap_methods_and_sorts(installed, cli, quick):
    data = json.loads(cli("compare", "--backbone", "toy", "--sort", "new_acc", "--json").out)
    assert {row["method"] for row in data["rows"]} == set(quick)
    means = [row["summary"]["new_acc"]["mean"] for row in data["rows"]]
    assert means == sorted(means, reverse=True)


def test_compare_shows_own_settings_beside_the_defaults(installed, cli):
    assert cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", "toy", "--set", "tau=4").code == 0
    data = json.loads(cli("compare", "teen", "protonet", "--backbone", "toy", "--json").out)
    assert {row["label"] for row in data["rows"]} == {"protonet", "teen", "teen tau=4.0", "teen variant=paper"}


def test_compare_never_shows_rows_of_another_bank(installed, cli, toy_backbone, toy_bank):
    other = toy_backbone(bank=toy_bank(seed=5))  # the same id, another bank
    assert cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", "toy").code == 0
    theirs = json.loads(cli("compare", "protonet", "--backbone", other, "--json", "--out", "other").out)
    ours = json.loads(cli("compare", "protonet", "--backbone", "toy", "--json", "--out", "other").out)
    means = [data["rows"][0]["summary"]["avg_acc"]["mean"] for data in (theirs, ours)]
    assert len(theirs["rows"]) == len(ours["rows"]) == 1
    assert means[0] != means[1]


def test_compare_needs_a_bank_of_the_dataset(installed, cli):
    done = cli("compare", "--dataset", "cub200", "--backbone", "toy")
    assert done.code == 2
    assert "has no bank-cub200.safetensors" in done.error_line


def test_compare_measures_a_mended_method_anew(installed, cli, monkeypatch):
    from fscil_bench_methods.simteen import SimTEEN

    def breaks(*_):
        raise RuntimeError("no luck")

    assert cli("compare", "protonet", "--backbone", "toy").code == 0  # one row left: measured in this process
    with monkeypatch.context() as patch:
        patch.setattr(SimTEEN, "calibrate", breaks)
        done = cli("compare", "simteen", "--backbone", "toy")
        assert done.code == 1
        assert "simteen (yours) failed: RuntimeError: no luck" in done.out
    data = json.loads(cli("compare", "simteen", "--backbone", "toy", "--json").out)
    assert [row["failed"] for row in data["rows"]] == [None, None]  # with the baseline it declares


def test_compare_refuses_a_baseline_it_cannot_use(installed, cli):
    assert cli("compare", "--baseline", "nothing", "--backbone", "toy").code == 2
    assert cli("compare", "--backbone", "nowhere").code == 2
    assert cli("compare", "tene", "--backbone", "toy").code == 2


def test_check_without_records_says_so(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    done = cli("check", "--root", tmp_path / "empty")
    assert done.code == 2
    assert "no records to check" in done.error_line
    assert cli("check", "--root", tmp_path / "none").code == 2


def test_two_updates_at_once(board, cli):
    from fscil_bench.files import exclusive

    code = "from fscil_bench.cli import entry; entry()"
    with exclusive(board / ".lock", "testing"):
        args = [sys.executable, "-c", code, "leaderboard", "update", "--tables-only"]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "another process is updating this leaderboard" in done.stderr
