"""A leaderboard on a toy backbone: `compare`."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("few_methods")


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


def test_compare_measures_anew_what_older_code_made(installed, cli, change):
    cli("compare", "protonet", "--backbone", "toy")
    path = Path("runs/cifar100/toy/protonet.fscil.json")
    before = path.read_text()
    change(path, lambda record: record["method"].update(code_sha256="0"))
    cli("compare", "protonet", "--backbone", "toy")
    assert json.loads(path.read_text())["draws"] == json.loads(before)["draws"]
    assert json.loads(path.read_text())["method"] == json.loads(before)["method"]


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
