"""`analyze sessions` from the command line: rows from records or measured, paired or not, beside what is published."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fscil_bench.leaderboard.rows import shipped_root

RECORD = Path("runs/cifar100/toy/teen.fscil.json")
TABLE = Path("analysis/cifar100/sessions.csv")


@pytest.fixture
def sessions(cli, toy_backbone):
    """Rows on a toy backbone, unless they name another."""
    backbone = toy_backbone()

    def call(*args):
        return cli("analyze", "sessions", "--dataset", "cifar100", "--backbone", backbone, *args)

    return call


@pytest.fixture
def other(toy_backbone, toy_bank):
    return toy_backbone("other", toy_bank(seed=5))


def as_json(done):
    assert done.code == 0, done.err
    return json.loads(done.out)


def lines(**wanted):
    """Lines of the CSV that have these cells."""
    with TABLE.open() as file:
        found = list(csv.DictReader(file))
    return [line for line in found if all(line[key] == value for key, value in wanted.items())]


def test_numbers_are_those_of_the_shipped_record(cli):
    done = cli("analyze", "sessions", "protonet", "teen", "--dataset", "cifar100")
    assert done.code == 0, done.err
    path = shipped_root() / "records" / "cifar100" / "cifar100-resnet20-short" / "teen.fscil.json"
    by_session = json.loads(path.read_text())["draws"]["metrics"]["by_session"]
    for metric, first in (("avg_acc", 0), ("hmean", 1), ("new_acc", 1)):
        found = lines(row="teen", metric=metric)
        assert [int(line["session"]) for line in found] == list(range(first, 9))
        for line in found:
            values = np.array([draw[int(line["session"])] for draw in by_session[metric]], dtype=float)
            assert float(line["mean"]) == pytest.approx(values.mean(), abs=1e-6)
            assert float(line["sd"]) == pytest.approx(values.std(ddof=1), abs=1e-6)
            half = stats.t.ppf(0.975, 99) * values.std(ddof=1) / 10
            assert float(line["high"]) - float(line["mean"]) == pytest.approx(half, abs=2e-6)
            assert float(line["mean"]) - float(line["low"]) == pytest.approx(half, abs=2e-6)
            assert (line["n"], line["source"]) == ("100", "shipped record")
    assert not Path("runs").exists()


def test_it_writes_a_table_and_pictures_and_says_so(sessions):
    done = sessions("protonet", "teen", "--draws", "3")
    assert done.code == 0, done.err
    assert "\n| teen | toy | measured | 3 |" in done.out
    assert "\n| teen minus protonet | 3 |" in done.out
    assert TABLE.with_suffix(".png").read_bytes().startswith(b"\x89PNG\r\n")
    picture = TABLE.with_suffix(".pdf").read_bytes()
    assert picture.startswith(b"%PDF")
    for kind in ("csv", "png", "pdf"):
        assert str(TABLE.with_suffix(f".{kind}")) in done.out
    sessions("protonet", "teen", "--draws", "3")
    assert TABLE.with_suffix(".pdf").read_bytes() == picture  # no dates in it


def test_a_full_row_is_measured_once_and_read_afterwards(sessions, read):
    first = as_json(sessions("teen", "--json"))["rows"][0]
    assert (first["source"], len(first["draws"])) == ("measured", 100)
    again = as_json(sessions("teen", "--json"))["rows"][0]
    assert again == {**first, "source": "own record"}
    values = [draw[8] for draw in read(RECORD)["draws"]["metrics"]["by_session"]["new_acc"]]
    assert again["by_session"]["new_acc"][-1]["mean"] == pytest.approx(np.mean(values))
    part = as_json(sessions("teen", "--draws", "5", "--json"))["rows"][0]
    assert part["source"] == "own record"
    assert part["by_session"]["new_acc"][-1]["mean"] == pytest.approx(np.mean(values[:5]))


def test_records_of_older_code_or_fewer_draws_or_other_settings_are_not_taken(sessions, cli, toy_backbone, read):
    run = ("run", "--method", "teen", "--dataset", "cifar100", "--backbone", toy_backbone())
    assert cli(*run, "--draws", "4").code == 0
    assert cli(*run, "--draws", "5", "--set", "tau=2").code == 0
    assert as_json(sessions("teen", "--draws", "4", "--json"))["rows"][0]["source"] == "own record"
    assert as_json(sessions("teen", "--draws", "5", "--json"))["rows"][0]["source"] == "measured"
    assert len(read(RECORD)["draws"]["names"]) == 4  # a row of a few draws replaces no record
    record = read(RECORD)
    record["method"]["code_sha256"] = "0"
    RECORD.write_text(json.dumps(record))
    assert as_json(sessions("teen", "--draws", "4", "--json"))["rows"][0]["source"] == "measured"


def test_steps_on_one_bank_are_paired(sessions, cli, toy_backbone):
    (step,) = as_json(sessions("protonet", "teen", "--draws", "6", "--json"))["steps"]
    run = ("run", "--method", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", "6", "--json")
    wanted = as_json(cli(*run))["paired"]["differences"]
    assert (step["row"], step["minus"], step["not_paired_because"]) == ("teen", "protonet", None)
    for metric in ("avg_acc", "hmean", "new_acc"):
        for part in ("mean", "sd", "low", "high", "n"):
            assert step["paired"][metric][part] == pytest.approx(wanted[metric][part])
        assert 0 <= step["paired"][metric]["p_holm"] <= 1


def test_steps_to_another_bank_are_not_paired_and_say_so(sessions, other):
    args = ("protonet", "teen", f"teen@{other}", "--draws", "4")
    data = as_json(sessions(*args, "--json"))
    assert [row["row"] for row in data["rows"]] == ["protonet@toy", "teen@toy", "teen@other"]
    assert data["rows"][1]["bank_sha256"] != data["rows"][2]["bank_sha256"]
    same, across = data["steps"]
    assert same["paired"]["hmean"]["n"] == 4
    assert (across["paired"], across["not_paired_because"]) == (None, "other bank")
    before, after = (row["by_session"]["hmean"][-1]["mean"] for row in data["rows"][1:])
    assert across["difference_of_means"]["hmean"] == pytest.approx(after - before)
    out = sessions(*args).out
    assert f"| teen@other minus teen@toy | – (other bank) | {data_cell(across, 'avg_acc')} | – |" in out


def data_cell(step, metric):
    return f"{step['difference_of_means'][metric]:+.2f} (not paired)"


def test_one_draw_gives_no_interval_and_no_test(sessions):
    data = as_json(sessions("protonet", "teen", "--draws", "1", "--json"))
    assert data["steps"][0]["not_paired_because"] == "one draw"
    assert data["rows"][0]["by_session"]["avg_acc"][0]["low"] is None
    assert lines(row="teen", metric="hmean", session="8")[0]["low"] == ""


def test_published_rows_are_marked(sessions):
    done = sessions("simteen", "teen", "--draws", "2")
    assert (
        "\n| TEEN, published | other backbone and draw | TEEN paper (NeurIPS 2023) | – | 52.64 | 37.11 | 25.13 |"
        in (done.out)
    )
    assert "? NAcc 1: 34.82 is impossible" in done.out
    (cell,) = lines(row="TEEN, published", metric="new_acc", session="1")
    assert (cell["mean"], cell["n"], cell["backbone"]) == ("34.82", "", "other backbone and draw")
    assert cell["source"].startswith("published: TEEN paper")
    assert "impossible" in cell["doubt"]
    (known,) = as_json(sessions("simteen", "teen", "--draws", "2", "--json"))["published"]  # SimTEEN has none
    assert (known["method"], known["of"]) == ("teen", "other backbone and draw")
    assert known["by_session"]["avg_acc"][8] == {"session": 8, "value": 52.64, "doubt": None}
    assert as_json(sessions("simteen", "--draws", "2", "--json"))["published"] == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["ten"], "unknown method 'ten': did you mean 'teen'"),
        (["teen@nowhere"], "unknown backbone 'nowhere'"),
        (["teen@"], "row 'teen@': expected METHOD or METHOD@BACKBONE"),
        (["@toy"], "row '@toy': expected METHOD or METHOD@BACKBONE"),
        (["teen@cub200-tf_efficientnet_lite0-short"], "cub200-tf_efficientnet_lite0-short has no bank-cifar100"),
        (["teen", "protonet", "teen"], "two rows are teen@toy"),
        ([], "Missing argument"),
    ],
)
def test_wrong_rows_exit_with_2_and_write_nothing(sessions, rows, message):
    done = sessions(*rows, "--draws", "2")
    assert done.code == 2
    assert message in done.error_line
    assert not Path("analysis").exists()


def test_a_row_named_twice_in_two_ways_is_refused(sessions, toy_backbone):
    done = sessions("teen", f"teen@{toy_backbone()}", "--draws", "2")
    assert done.code == 2
    assert "two rows are teen@toy" in done.error_line


def test_runs_that_cannot_be_written_to_exit_with_2_before_the_work(cli, toy_backbone, monkeypatch):
    monkeypatch.setattr("fscil_bench.evaluate.Arena.run", None)
    Path("file").write_text("")
    done = cli("analyze", "sessions", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--runs", "file")
    assert done.code == 2
    assert "Choose another place with --runs" in done.error_line
