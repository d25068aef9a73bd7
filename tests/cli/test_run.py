"""`run` and `ls` through the command line: what is printed, what is stored, what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from fscil_bench.backbones.store import bank_name
from fscil_bench.files import exclusive
from fscil_bench.records import read_record

FOLDER = Path("runs/cifar100/toy")
RECORD = FOLDER / "teen.fscil.json"


@pytest.fixture
def run(cli, toy_backbone):
    """`run` on a toy backbone."""
    folder = toy_backbone()

    def call(*args, method="teen", dataset="cifar100"):
        return cli("run", "--method", method, "--dataset", dataset, "--backbone", folder, *args)

    return call


def test_it_prints_sessions_published_row_differences_and_place(run, tmp_path):
    done = run("--draws", "4")
    assert done.code == 0, done.err
    assert "AvgAcc, mean of 4 draws" in done.out
    assert "AvgAcc, published: TEEN" in done.out
    assert "minus protonet, paired" in done.out
    assert "? AvgAcc, session 6: printed 57.90" in done.out
    assert "HMean: harmonic mean of BAcc and NAcc" in done.out
    assert "Draws: 4 random, random:0 to random:3" in done.out
    assert "Record: runs/cifar100/toy/teen.fscil.json" in done.out
    assert "shift_weight=0.1 (code)" in done.out


def test_piped_tables_are_whole_markdown(run):
    lines = run("--draws", "2").out.splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) > 10
    assert all(line.endswith(" |") for line in rows)


def test_the_record_holds_every_draw(run):
    run("--draws", "4", "--set", "tau=8")
    files = sorted(path.name for path in FOLDER.iterdir())
    assert [name.split(".", 1)[1] for name in files] == ["fscil.json", "fscil.predictions.safetensors"]
    assert files[0].startswith("teen-")  # other settings, other name
    record = read_record(FOLDER / files[0])
    assert record["schema"] == "fscil-bench/record/1"
    assert record["method"]["settings"] == {"shift_weight": 0.1, "tau": 8.0, "variant": "code"}
    assert record["method"]["origins"]["tau"] == "user"
    assert record["draws"]["names"] == [f"random:{i}" for i in range(4)]
    by_session = record["draws"]["metrics"]["by_session"]
    assert len(by_session["avg_acc"]) == 4
    assert len(by_session["avg_acc"][0]) == 9
    assert by_session["hmean"][0][0] is None
    assert record["summary"]["avg_acc"]["n"] == 4
    assert record["standard"] is None
    for secret in (str(Path.cwd()), os.uname().nodename):
        assert secret not in json.dumps(record)


def test_predictions_are_kept_for_the_first_draw(run):
    run("--draws", "3")
    with safe_open(FOLDER / "teen.fscil.predictions.safetensors", "np") as file:
        predictions = file.get_tensor("predictions")
        assert json.loads(file.metadata()["fscil-bench"])["draw"] == "random:0"
    assert predictions.shape == (9, 300)
    assert (predictions[-1] >= 0).all()


def test_json_is_one_document(run):
    done = run("--draws", "3", "--json")
    document = json.loads(done.out)
    assert document["paired"]["baseline"] == "protonet"
    assert document["paired"]["differences"]["avg_acc"]["n"] == 3


def test_one_draw_has_no_interval(run):
    done = run("--draw", "random:7")
    assert done.code == 0, done.err
    assert "Draws: random:7" in done.out
    headline = next(line for line in done.out.splitlines() if line.startswith("| PD |"))
    assert headline.split("|")[3:5] == [" – ", " – "]


def test_a_missing_standard_draw_is_a_note_not_an_error(run):
    done = run("--json")
    assert done.code == 0
    assert "Note: the standard draw of cifar100 lists indices" in done.err
    assert len(json.loads(done.out)["draws"]["names"]) == 100


def test_asked_for_by_name_a_missing_standard_draw_is_an_error(run):
    done = run("--draw", "standard")
    assert done.code == 2
    assert "official archive" in done.error_line
    assert not FOLDER.parent.exists()


def test_the_standard_draw_comes_first_where_it_resolves(cli, toy_backbone, toy_bank, monkeypatch):
    from dataclasses import replace

    from fscil_bench import evaluate
    from fscil_bench.protocols import load_protocol

    protocol = load_protocol("cub200")
    support = tuple(tuple(f"train/{protocol.classes[c]}/{k:03d}.png" for k in range(5)) for c in range(100, 200))
    monkeypatch.setattr(evaluate, "load_protocol", lambda _: replace(protocol, support=support))
    folder = toy_backbone(bank=toy_bank(dataset="cub200"))
    done = cli("run", "--method", "teen", "--dataset", "cub200", "--backbone", folder, "--json")
    record = json.loads(done.out)
    assert record["standard"]["by_session"]["avg_acc"][0] > 0
    assert len(record["draws"]["names"]) == 100
    shown = cli("run", "--method", "teen", "--dataset", "cub200", "--backbone", folder)
    assert "AvgAcc, standard draw" in shown.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--draw", "rndom:1"), "unknown draw 'rndom:1'"),
        (("--set", "taw=1"), "unknown setting of method teen 'taw': did you mean 'tau'"),
        (("--set", "tau=x"), "tau=x is not a number"),
        (("--set", "tau"), "expected name=value"),
        (("--draws", "0"), "--draws"),
        (("--baseline", "protone"), "did you mean 'protonet'"),
        (("--frobnicate",), "No such option"),
    ],
)
def test_wrong_calls_exit_with_2_and_store_nothing(run, args, message):
    done = run(*args)
    assert done.code == 2
    assert message in done.error_line
    assert not FOLDER.parent.exists()


def test_composed_methods_run_by_name(run):
    done = run("--draws", "2", "--set", "teen.tau=4", "--json", method="simteen+teen")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["method"]["settings"]["teen.tau"] == 4.0
    assert record["paired"]["baseline"] == "simteen"
    assert "unknown method 'tean'" in run(method="protonet+tean").error_line
    assert (
        "unknown setting of method protonet+teen 'teen.taw': did you mean 'teen.tau'"
        in run("--set", "teen.taw=1", method="protonet+teen").error_line
    )


def test_the_baseline_of_a_composed_method_has_the_settings_that_were_given(run):
    """X+Y with X's settings minus X with the same: what Y adds."""
    args = ("--draws", "2", "--set", "k=1", "--set", "shift_weight=0.7")
    both = run(*args, "--set", "teen.tau=4", "--json", method="simteen+teen")
    paired = json.loads(both.out)["paired"]
    assert paired["baseline"] == "simteen shift_weight=0.7 k=1"
    alone = json.loads(run(*args, "--json", method="simteen").out)["summary"]["hmean"]["mean"]
    composed = json.loads(both.out)["summary"]["hmean"]["mean"]
    assert paired["differences"]["hmean"]["mean"] == pytest.approx(composed - alone)
    named = run(*args, "--baseline", "simteen", "--json", method="simteen+teen")
    assert json.loads(named.out)["paired"]["baseline"] == "simteen"  # as it comes


def test_one_draw_is_named_and_has_no_interval(run):
    done = run("--draws", "1")
    assert "| AvgAcc, random:0 |" in done.out
    assert "mean of 1" not in done.out
    assert "Student-t" not in done.out


def test_a_declared_baseline_that_is_missing_costs_nothing(run, monkeypatch):
    from fscil_bench_methods.simteen import SimTEEN

    monkeypatch.setattr(SimTEEN, "baseline", "gone")
    done = run("--draws", "2", method="simteen")
    assert done.code == 0
    assert "no differences are shown: unknown method 'gone'" in done.err
    assert (FOLDER / "simteen.fscil.json").is_file()


def test_unknown_names_exit_with_2(run, cli):
    assert "did you mean 'teen'" in run(method="tene").error_line
    assert "did you mean 'cifar100'" in run(dataset="cifar").error_line
    done = cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", "nothing")
    assert done.code == 2
    assert "unknown backbone 'nothing'" in done.error_line


def test_a_dataset_without_its_backbone_says_how_to_get_one(cli, toy_backbone, toy_bank, monkeypatch, tmp_path):
    call = ("run", "--method", "teen", "--dataset", "cub200-fsl")
    assert cli(*call).error_line == (
        "Error: no backbone of cub200-fsl is here: train one with `fscil-bench backbone train --dataset cub200-fsl`, "
        "or name one with --backbone"
    )
    toy_backbone("home/backbones/own", toy_bank(dataset="cub200"), "cub200-fsl")
    monkeypatch.setenv("FSCIL_BENCH_HOME", str(tmp_path / "backbones" / "home"))
    done = cli(*call)
    assert done.code == 2
    assert "the default backbone cub200-fsl-tf_efficientnet_lite0-short is not here: train it with" in done.error_line
    assert "name another with --backbone: own" in done.error_line


def test_a_wrong_data_root_exits_with_2(run, tmp_path):
    done = run("--data-root", tmp_path / "none")
    assert done.code == 2
    assert "is not a folder" in done.error_line


def test_an_unwritable_output_exits_with_2(run, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("--out", tmp_path / "file" / "runs")
    assert done.code == 2
    assert "--out" in done.error_line


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_damaged_bank_exits_with_1_and_keeps_the_old_record(run, toy_backbone, flip_bit, damage):
    run("--draws", "2")
    before = RECORD.read_text()
    path = toy_backbone() / bank_name("cifar100")
    if damage == "flip":
        flip_bit(path)
    else:
        path.write_bytes(path.read_bytes()[:-1])
    done = run("--draws", "3")
    assert done.code == 1
    assert "damaged" in done.error_line
    assert RECORD.read_text() == before


def test_a_class_with_too_few_images_exits_with_2(cli, toy_backbone, toy_bank):
    folder = toy_backbone(bank=toy_bank(train=3))
    done = cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", folder)
    assert done.code == 2
    assert "has 3 training images, 5 are needed" in done.error_line


def test_two_runs_writing_one_record_at_once(run, tmp_path):
    with exclusive(RECORD.with_suffix(".lock"), "testing"):
        code = "import sys; from fscil_bench.cli import entry; sys.argv[0] = 'fscil-bench'; entry()"
        folder = tmp_path / "backbones" / "toy"
        args = ["run", "--method", "teen", "--dataset", "cifar100", "--backbone", str(folder), "--draws", "2"]
        done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "another process is writing teen.fscil.json" in done.stderr
    assert run("--draws", "2").code == 0
    assert sorted(path.name for path in FOLDER.iterdir()) == ["teen.fscil.json", "teen.fscil.predictions.safetensors"]


def test_a_full_disk_exits_with_1_and_keeps_the_old_record(run, monkeypatch):
    run("--draws", "2")
    before = RECORD.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    predictions = (FOLDER / "teen.fscil.predictions.safetensors").read_bytes()
    for place in ("fscil_bench.results.save_file", "fscil_bench.files.Path.write_bytes"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            done = run("--draws", "3", "--set", "tau=16")
        assert done.code == 1
        assert "No space left" in done.error_line
        assert RECORD.read_text() == before
        assert (FOLDER / "teen.fscil.predictions.safetensors").read_bytes() == predictions
        assert len(list(FOLDER.iterdir())) == 2


def test_an_interrupt_exits_with_130(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fscil_bench.evaluate.Arena.run", interrupted)
    done = run("--draws", "2")
    assert done.code == 130
    assert done.error_line == "Error: interrupted"


def test_a_bug_is_one_line_unless_debugging(run, cli, monkeypatch, toy_backbone):
    def bug(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("fscil_bench.evaluate.Arena.run", bug)
    done = run("--draws", "2")
    assert done.code == 1
    assert "ZeroDivisionError: oops" in done.error_line
    with pytest.raises(ZeroDivisionError):
        cli("--debug", "run", "--method", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", "2")


def test_ls_methods_and_datasets(cli):
    assert {m["name"] for m in json.loads(cli("ls", "methods", "--json").out)} >= {"protonet", "teen", "simteen"}
    assert "| teen | Pull new prototypes" in cli("ls", "methods").out
    assert {d["name"] for d in json.loads(cli("ls", "datasets", "--json").out)} >= {
        "cifar100",
        "cifar100-val",
        "cub200",
        "miniimagenet",
    }
    assert "60 base classes" in cli("ls", "datasets").out


def test_no_arguments_give_help(cli):
    for args in ((), ("ls",), ("backbone",)):
        done = cli(*args)
        assert done.code == 2
        assert done.out.startswith("Usage: ")
        assert "Commands:" in done.out


def test_unknown_commands_get_a_suggestion(cli):
    done = cli("rnu")
    assert done.code == 2
    assert "did you mean 'run'" in done.error_line
