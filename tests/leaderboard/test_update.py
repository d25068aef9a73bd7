"""A leaderboard on a toy backbone: its rows are measured and its tables written."""

import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch

from fscil_bench.leaderboard.measuring import measure_rows, tasks_for
from fscil_bench.leaderboard.rows import load_rows
from fscil_bench.leaderboard.tables import ranked, render_tables

pytestmark = pytest.mark.usefixtures("few_methods")


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


def test_update_of_missing_rows_measures_those_alone(board, cli, change, shift):
    update = ("leaderboard", "update", "--backbone", "toy", "--workers", 1, "--missing", "--kind", "fscil")
    assert "nothing measured" in cli(*update).out
    row = {name: next(board.rglob(f"{name}.fscil.json")) for name in ("protonet", "simteen", "teen")}
    whole = {name: json.loads(path.read_text())["draws"] for name, path in row.items()}
    row["protonet"].unlink()
    change(
        row["simteen"], lambda record: record["method"].update(costly=True)
    )  # a row of when it was: 10 draws were full
    change(row["teen"], lambda record: shift(record, 1.0))  # wrong, but there
    assert "2 measured" in cli(*update).out
    assert {name for name, path in row.items() if json.loads(path.read_text())["draws"] == whole[name]} == {
        "protonet",
        "simteen",
    }


@pytest.fixture
def processes(monkeypatch):
    """Rows are measured in processes of their own, as they are outside of tests."""
    monkeypatch.setattr("fscil_bench.leaderboard.measuring.ProcessPoolExecutor", ProcessPoolExecutor)


def test_processes_measure_what_one_measures(processes, board, installed):
    measure_rows(tasks_for(["protonet", "teen"], None, _backbones()), Path("parallel"), workers=2)
    for path in Path("parallel").rglob("*.json"):
        ours = json.loads(path.read_text())
        theirs = json.loads((board / "records" / path.relative_to("parallel")).read_text())
        assert ours["draws"] == theirs["draws"]


PROBE = """
import os, resource

def measure_row(task, root):
    held = b"x" * (task << 20)
    return f"{os.getpid()} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}"
"""


def test_a_rows_peak_memory_is_its_own(processes, tmp_path, monkeypatch):
    """Not that of the row that the same worker measured before it, nor of the process that asked for it."""
    (tmp_path / "probe.py").write_text(PROBE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("fscil_bench.leaderboard.measuring.measure_row", importlib.import_module("probe").measure_row)
    held = b"x" * (400 << 20)
    told = {}
    measure_rows([300, 0], Path("records"), lambda task, outcome: told.update({task: outcome}), workers=1)
    del held
    (first, high), (second, low) = (map(int, told[megabytes].split()) for megabytes in (300, 0))
    assert len({first, second, os.getpid()}) == 3
    assert low < 0.8 * min(high, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda r: r["protocol"].update(sha256="0"), "another cifar100 split"),
        (lambda r: r["backbone"].update(bank_sha256="0"), "another bank of toy"),
        (lambda r: r.update(schema="fscil-bench/record/0"), "not a record of schema"),
        (lambda r: r["draws"]["names"].pop(), "100 values, draws are 99"),
        (lambda r: r["draws"]["metrics"]["by_session"].pop("hmean"), "damaged (KeyError: 'hmean')"),
        (lambda r: r["draws"]["metrics"]["by_session"]["hmean"][0].pop(), "hmean does not have 9 sessions"),
        (lambda r: r.pop("standard"), "damaged (KeyError: 'standard')"),
        (
            lambda r: r["draws"]["metrics"]["by_session"]["hmean"][0].__setitem__(1, "x"),
            "hmean holds what is no number",
        ),
        (lambda r: r["method"].update(settings=[]), "damaged (AttributeError"),
        (lambda r: r["method"].update(privileges=5), "damaged (TypeError"),
        (lambda r: r["backbone"].pop("augmentation"), "damaged (KeyError: 'augmentation')"),
        (lambda r: r["protocol"].update(name="imagenet"), "unknown dataset 'imagenet'"),
        (lambda r: r.pop("backbone"), "damaged (KeyError: 'backbone')"),
    ],
)
def test_records_that_do_not_fit_are_named_and_the_rest_shown(board, cli, edit, message, change):
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
        assert "1 method failed" in done.error_line
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


def test_update_measures_rows_with_other_settings_too(board, cli, change, shift):
    args = ("--dataset", "cifar100", "--backbone", "toy", "--out", board / "records")
    assert cli("run", "--method", "simteen+teen", "--set", "teen.tau=4", *args).code == 0
    path = next(board.rglob("simteen+teen-*.fscil.json"))
    change(path, lambda record: shift(record, 1.0))
    assert "1 measured" in cli("leaderboard", "update", "--backbone", "toy", "--workers", 1).out
    assert cli("check").code == 0


def test_records_of_methods_that_are_gone_do_not_hinder_the_others(board, cli, change):
    change(next(board.rglob("simteen.fscil.json")), lambda record: record["method"].update(name="gone"))
    args = ("leaderboard", "update", "--backbone", "toy", "--workers", 1, "--method", "protonet")
    assert cli(*args, "--missing").code == 0
    assert cli(*args).code == 0


def test_two_updates_at_once(board, cli):
    from fscil_bench.files import exclusive

    code = "from fscil_bench.cli import entry; entry()"
    with exclusive(board / ".lock", "testing"):
        args = [sys.executable, "-c", code, "leaderboard", "update", "--tables-only"]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "another process is updating this leaderboard" in done.stderr
