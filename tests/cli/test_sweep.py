"""`sweep` from the command line."""

import csv
import json
from pathlib import Path

import pytest

PNG = b"\x89PNG\r\n"
GRID = ("--grid", "shift_weight=0:1:0.5", "--grid", "tau=4,16")


@pytest.fixture
def sweep(cli, toy_backbone):
    backbone = toy_backbone()

    def call(*args, method="teen"):
        base = ("sweep", "--method", method, "--dataset", "cifar100", "--backbone", backbone)
        return cli(*base, *(("--draws", "3") if "--draws" not in args else ()), *args)

    return call


def lines(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_sweep_tells_the_best_points_and_keeps_all(sweep, cli, toy_backbone, tmp_path):
    done = sweep(*GRID)
    assert done.code == 0, done.err
    for text in (
        "best AvgAcc",
        "best HMean",
        "best NAcc",
        "| default | shift_weight=0.1 tau=16.0 |",
        "| variant=paper |",
    ):
        assert text in done.out
    assert "selected_on = test" in done.out
    assert "--dataset cifar100-val" in done.out
    folder = tmp_path / "cwd" / "sweeps" / "cifar100" / "toy" / "teen"
    assert (folder / "shift_weight-tau.png").read_bytes().startswith(PNG)
    rows = lines(folder / "shift_weight-tau.csv")
    assert [row["point"] for row in rows] == ["grid"] * 6 + ["default", "variant=paper"]
    assert {row["selected_on"] for row in rows} == {"test"}
    assert [(row["shift_weight"], row["tau"]) for row in rows[:3]] == [("0.0", "4.0"), ("0.0", "16.0"), ("0.5", "4.0")]
    run = ("run", "--method", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", "3", "--json")
    for row in (rows[3], rows[7]):
        settings = [f"--set={key}={value}" for key, value in json.loads(row["settings"]).items()]
        summary = json.loads(cli(*run, *settings).out)["summary"]
        for metric in ("avg_acc", "hmean", "new_acc", "base_acc", "pd", "mean_acc", "fnr", "fpr"):
            assert float(row[f"{metric}_mean"]) == pytest.approx(summary[metric]["mean"], abs=1e-6)
            assert float(row[f"{metric}_sd"]) == pytest.approx(summary[metric]["sd"], abs=1e-6)


def test_the_best_point_is_the_best(sweep):
    data = json.loads(sweep(*GRID, "--json").out)
    assert len(data["points"]) == 6
    assert data["axes"] == {"shift_weight": [0.0, 0.5, 1.0], "tau": [4.0, 16.0]}
    assert data["selected_on"] == "test"
    for metric, best in data["best"].items():
        assert best["summary"][metric]["mean"] == max(point["summary"][metric]["mean"] for point in data["points"])
        assert 1 <= best["as_good"] <= 6
    assert set(data["given"]) == {"default", "variant=paper"}
    assert data["given"]["variant=paper"]["settings"]["shift_weight"] == 0.9


def test_what_is_fixed_is_named_and_does_not_pass_for_a_default(sweep):
    done = sweep("--grid", "tau=1,2", "--set", "shift_weight=0.7")
    assert "**teen shift_weight=0.7 on cifar100" in done.out
    rows = {line.split(" | ")[0].strip("| "): line for line in done.out.splitlines() if line.startswith("| ")}
    assert "| tau=16.0 shift_weight=0.1 |" in rows["default"]
    assert "| tau=16.0 shift_weight=0.7 |" in rows["default with shift_weight=0.7"]
    assert " shift_weight=0.7 | " in rows["best HMean"]


def test_points_that_fail_are_named_and_the_others_measured(sweep, monkeypatch):
    from fscil_bench_methods.teen import TEEN

    calibrate = TEEN.calibrate

    def fails(self, new, base):
        if self.tau == 2:
            raise OverflowError("too much")
        return calibrate(self, new, base)

    monkeypatch.setattr(TEEN, "calibrate", fails)
    done = sweep("--grid", "tau=1,2,4")
    assert done.code == 1
    assert "1 of 5 points failed (teen tau=2.0: OverflowError: too much)" in done.error_line
    again = sweep("--grid", "tau=1,4")
    assert again.code == 0, again.err
    assert "4 of 4 points were on disk already." in again.err


def test_no_picture_of_an_earlier_grid_is_left(sweep):
    two = ("--grid", "shift_weight=0,0.5", "--grid", "tau=1,2", "--grid")
    first = json.loads(sweep(*two, "variant=code", "--json").out)
    assert Path(first["png"]).exists()
    assert json.loads(sweep(*two, "variant=code,paper", "--json").out)["png"] is None
    assert not Path(first["png"]).exists()


def test_one_draw_tells_nothing_of_points_as_good(sweep):
    done = sweep(*GRID, "--draws", "1")
    assert "6 points, last session, mean over 1 draw ±" in done.out
    best = next(line for line in done.out.splitlines() if line.startswith("| best HMean"))
    assert best.endswith("| – |")
    assert json.loads(sweep(*GRID, "--draws", "1", "--json").out)["best"]["hmean"]["as_good"] is None


def test_a_second_sweep_reads_the_first(sweep, monkeypatch):
    first = sweep(*GRID)
    assert "on disk" not in first.err
    monkeypatch.setattr("fscil_bench.analysis.sweep.SharedScores.calibrated", None)
    second = sweep(*GRID)
    assert second.out == first.out
    assert "8 of 8 points were on disk already" in second.err


def test_an_interrupted_sweep_says_how_far_it_came(sweep, monkeypatch):
    def interrupted(self, calibrated):
        raise KeyboardInterrupt

    monkeypatch.setattr("fscil_bench.analysis.sweep.SharedScores.headlines", interrupted)
    done = sweep(*GRID)
    assert done.code == 130
    assert "0 of 8 points are on disk: the same command goes on" in done.err


def test_one_setting_gives_a_line_plot_and_three_give_none(sweep, tmp_path):
    folder = tmp_path / "cwd" / "sweeps" / "cifar100" / "toy" / "simteen"
    done = sweep("--grid", "k=1,3", "--set", "shift_weight=0.3", "--draws", "1", method="simteen")
    assert done.code == 0, done.err
    (picture,) = folder.glob("k-*.png")
    assert picture.read_bytes().startswith(PNG)
    words = sweep("--grid", "reduce=mean,sum", method="simteen")
    assert words.code == 0, words.err
    three = sweep("--grid", "k=1,3", "--grid", "reduce=mean,sum", "--grid", "shift_weight=0,0.1", method="simteen")
    assert three.code == 0, three.err
    assert "no picture" in three.err
    assert len(lines(folder / "k-reduce-shift_weight.csv")) == 9


def test_equal_values_are_one_point(sweep, tmp_path):
    assert sweep("--grid", "tau=1,1.0,2", "--grid", "shift_weight=0,0.0,1").code == 0
    rows = lines(tmp_path / "cwd" / "sweeps" / "cifar100" / "toy" / "teen" / "tau-shift_weight.csv")
    assert sum(row["point"] == "grid" for row in rows) == 4


def test_composed_methods_are_swept_by_their_parts_settings(sweep):
    done = sweep("--grid", "teen.tau=1:4:3", method="simteen+teen")
    assert done.code == 0, done.err
    assert "teen.tau=" in done.out


def test_a_validation_protocol_leaks_nothing_and_says_nothing(cli, toy_backbone, toy_bank, tmp_path):
    backbone = toy_backbone(bank=toy_bank(dataset="cifar100-val", train=106, test=0), protocol="cifar100-val")
    done = cli("sweep", "--method", "teen", "--dataset", "cifar100-val", "--backbone", backbone, *GRID, "--draws", "2")
    assert done.code == 0, done.err
    assert "selected_on" not in done.out
    (table,) = (tmp_path / "cwd" / "sweeps").rglob("*.csv")
    assert {row["selected_on"] for row in lines(table)} == {"validation"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--grid", "tua=1,2"), "did you mean 'tau'"),
        (("--grid", "tau=1,x"), "tau=x is not a number"),
        (("--grid", "shift_weight=0:2:1"), "shift_weight=2.0 must be between 0 and 1"),
        (("--grid", "tau=1:2"), "expected start:stop:step"),
        (("--grid", "tau=1,2", "--set", "tau=3"), "tau is in --set and in --grid"),
        ((), "--grid"),
        (("--grid", "tau=1", "--draws", "0"), "--draws"),
    ],
)
def test_wrong_calls_exit_with_2_before_any_work(sweep, tmp_path, args, message):
    done = sweep(*args)
    assert done.code == 2, done.err
    assert message in done.error_line
    assert not (tmp_path / "cwd" / "sweeps").exists()
