"""`analyze offset` and `analyze prototypes` from the command line."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from fscil_bench.protocols import load_protocol

PNG = b"\x89PNG\r\n"


@pytest.fixture
def analyze(cli, toy_backbone):
    backbone = toy_backbone()

    def call(what, *args):
        return cli("analyze", what, "--dataset", "cifar100", "--backbone", backbone, "--draws", "4", *args)

    return call


def lines(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_offset_writes_table_curves_and_picture(analyze, cli, toy_backbone, tmp_path):
    done = analyze("offset", "teen", "simteen")
    assert done.code == 0, done.err
    for label in ("protonet", "teen", "teen variant=paper", "simteen"):
        assert f"\n| {label} | 4 |" in done.out
    folder = tmp_path / "cwd" / "analysis" / "cifar100" / "toy"
    assert (folder / "offset.png").read_bytes().startswith(PNG)
    table = {row["method"]: row for row in lines(folder / "offset.csv")}
    assert table["protonet"]["gain_mean"] == ""
    run = ("run", "--method", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", "4", "--json")
    record = json.loads(cli(*run).out)
    for metric in ("base_acc", "new_acc"):
        assert float(table["teen"][f"{metric}_mean"]) == pytest.approx(record["summary"][metric]["mean"], abs=1e-6)
    gain = record["paired"]["differences"]["new_acc"]
    assert float(table["teen"]["gain_mean"]) == pytest.approx(gain["mean"], abs=1e-6)
    assert float(table["teen"]["gain_low"]) == pytest.approx(gain["low"], abs=1e-6)
    cells = next(line for line in done.out.splitlines() if line.startswith("| teen |")).split(" | ")
    assert cells[4].startswith(f"{float(table['teen']['area_mean']):.2f} ±")
    assert cells[5].startswith(f"{float(table['teen']['more_area_mean']):+.2f} (")
    assert float(table["protonet"]["area_mean"]) > 0
    by_offset, beyond = (float(table["teen"][f"{key}_mean"]) for key in ("by_offset", "beyond"))
    assert by_offset + beyond == pytest.approx(gain["mean"], abs=1e-5)
    curve = [row for row in lines(folder / "offset-curves.csv") if row["method"] == "teen"]
    heights = [float(row["new_acc_mean"]) for row in curve]
    assert heights == sorted(heights, reverse=True)
    assert float(curve[0]["base_acc"]) == 0


def test_offset_as_json(analyze):
    data = json.loads(analyze("offset", "simteen", "--json").out)
    assert data["baseline"] == "protonet"
    assert data["methods"]["protonet"]["over_baseline"] is None
    assert set(data["methods"]["simteen"]["over_baseline"]) == {"gain", "by_offset", "beyond", "more_area", "share"}
    assert data["methods"]["simteen"]["curve"][0]["base_acc"] == 0


def test_offset_takes_any_baseline(analyze):
    done = analyze("offset", "protonet", "--baseline", "simteen", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["methods"]["protonet"]["over_baseline"]["gain"]["n"] == 4


def test_offset_needs_a_baseline(analyze):
    done = analyze("offset", "protonet")
    assert done.code == 2
    assert "protonet builds on no other method: name one with --baseline" in done.error_line


def test_offset_names_the_costly_methods_that_it_leaves_out(analyze):
    done = analyze("offset", "--json")
    assert done.code == 0, done.err
    notes = [line for line in done.err.splitlines() if line.startswith("Left out, as costly: ")]
    assert len(notes) == 1
    left_out = notes[0].partition(": ")[2].partition(".")[0].split(", ")
    assert "lr" in left_out
    shown = {label.split()[0] for label in json.loads(done.out)["methods"]}
    assert not shown & {*left_out}
    assert "as costly" not in analyze("offset", "teen").err


def test_offset_takes_the_costly_methods_if_told(analyze, cli, toy_backbone, monkeypatch):
    monkeypatch.setattr("fscil_bench.cli.analyze.loadable", lambda: ["knn", "protonet"])
    monkeypatch.setattr("fscil_bench_methods.knn.NearestNeighbour.costly", ("fscil",))
    done = analyze("offset", "--costly")
    assert done.code == 0, done.err
    assert "Left out" not in done.err
    assert "\n| knn | 4 |" in done.out
    by_default = cli("analyze", "offset", "--costly", "--dataset", "cifar100", "--backbone", toy_backbone("other"))
    assert "\n| protonet | 100 |" in by_default.out
    assert "\n| knn | 10 |" in by_default.out
    both = analyze("offset", "teen", "--costly")
    assert both.code == 2
    assert "--costly is about all methods: leave it out, or name none" in both.error_line


def test_what_no_offset_reaches_is_a_dash_and_explained(analyze, monkeypatch):
    monkeypatch.setattr(
        "fscil_bench.analysis.offset.Curves.new_acc_at", lambda self, base_acc: np.full_like(base_acc, np.nan)
    )
    done = analyze("offset", "simteen")
    cells = next(line for line in done.out.splitlines() if line.startswith("| simteen |")).split(" | ")
    assert cells[-3:] == ["–", "–", "– |"]
    assert "have a dash where the method has, in some draw, more BAcc than protonet reaches with any offset" in done.out


@pytest.mark.parametrize("what", ["offset", "prototypes"])
def test_an_unwritable_output_exits_with_2_before_the_work(analyze, tmp_path, monkeypatch, what):
    monkeypatch.setattr("fscil_bench.evaluate.Arena", None)
    (tmp_path / "file").write_text("")
    done = analyze(what, "teen", "--out", tmp_path / "file" / "analysis")
    assert done.code == 2
    assert "Choose another place with --out" in done.error_line


def test_prototypes_tell_how_near_they_are(analyze, tmp_path):
    done = analyze("prototypes")
    assert done.code == 0, done.err
    assert "| protonet |" in done.out
    assert "| teen variant=paper |" in done.out
    rows = lines(tmp_path / "cwd" / "analysis" / "cifar100" / "toy" / "prototypes.csv")
    plain = [row for row in rows if row["method"] == "protonet"]
    assert len(plain) == 40
    assert all(row["cosine_before"] == row["cosine_after"] for row in plain)
    data = json.loads(analyze("prototypes", "teen", "--json").out)["methods"]
    assert set(data) == {"teen", "teen variant=paper"}
    of_teen = [float(row["centred_after"]) for row in rows if row["method"] == "teen"]
    assert data["teen"]["centred"]["after"]["mean"] == pytest.approx(sum(of_teen) / 40, abs=1e-6)


def test_one_draw_has_no_interval(cli, toy_backbone):
    done = cli("analyze", "prototypes", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", "1")
    assert "nan" not in done.out
    assert "(–)" in done.out


@pytest.mark.parametrize("what", ["offset", "prototypes"])
def test_wrong_names_exit_with_2(analyze, cli, what):
    assert "did you mean 'teen'" in analyze(what, "ten").error_line
    done = cli("analyze", what, "--dataset", "cifar10")
    assert done.code == 2
    assert "unknown dataset 'cifar10'" in done.error_line


def test_only_methods_that_calibrate_have_prototypes_to_compare(analyze, monkeypatch):
    monkeypatch.setattr("fscil_bench.analysis.prototypes.only_calibrates", lambda method: False)
    done = analyze("prototypes", "teen")
    assert done.code == 2
    assert "method teen does not just calibrate class means" in done.error_line


def test_a_method_of_another_objective_is_named_if_asked_for_and_left_out_if_not(analyze, monkeypatch):
    from fscil_bench_methods.teen import TEEN

    monkeypatch.setattr(TEEN, "objective", "special")
    done = analyze("offset", "teen")
    assert done.code == 2
    assert "method teen needs a backbone trained for the objective" in done.error_line
    rest = analyze("offset")
    assert rest.code == 0, rest.err
    assert "Left out: method teen" in rest.err


@pytest.mark.parametrize(
    "call",
    [("analyze", "offset"), ("analyze", "prototypes"), ("analyze", "sessions", "teen"), ("sweep", "--method", "teen")],
)
def test_a_protocol_without_sessions_is_refused(cli, monkeypatch, call):
    whole = load_protocol("cifar100")
    none = replace(whole, classes=whole.classes[:60], sessions=0)
    module = {"analyze": "fscil_bench.cli.analyze", "sweep": "fscil_bench.cli.sweep"}[call[0]]
    monkeypatch.setattr(f"{module}.load_protocol", lambda name: none)
    done = cli(*call, "--dataset", "cifar100", *(("--grid", "tau=1") if call[0] == "sweep" else ()))
    assert done.code == 2
    assert "has no sessions" in done.error_line
