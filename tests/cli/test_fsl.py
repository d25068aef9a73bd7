"""`fsl` through the command line: what is printed, what is stored, what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from fscil_bench.files import exclusive
from fscil_bench.records import read_record, unpack_counts

FOLDER = Path("runs/cifar100/toy")
RECORD = FOLDER / "teen.fsl.json"


@pytest.fixture
def fsl(cli, toy_backbone, toy_bank):
    """`fsl` on a toy backbone with enough images, 50 episodes."""
    folder = toy_backbone(bank=toy_bank(train=17, test=6))

    def call(*args, method="teen", dataset="cifar100"):
        defaults = () if "--episodes" in args else ("--episodes", 50)
        return cli("fsl", "--method", method, "--dataset", dataset, "--backbone", folder, *defaults, *args)

    return call


def test_it_prints_accuracies_differences_and_place(fsl):
    done = fsl()
    assert done.code == 0, done.err
    assert "**teen on cifar100, 50 episodes, seed 0**" in done.out
    assert "minus protonet, paired" in done.out
    rows = [line for line in done.out.splitlines() if line.startswith(("| 5w1s |", "| 5w5s |"))]
    assert [row.count("|") for row in rows] == [7, 7]
    assert "base classes are donors only" in done.out
    assert "- Backbone: toy" in done.out
    assert f"Record: {RECORD}" in done.out


def test_the_record_holds_every_episode(fsl):
    fsl("--seed", 3, "--set", "tau=8")
    record = read_record(next(FOLDER.glob("teen-*.fsl.json")))
    assert record["kind"] == "fsl"
    assert record["episodes"] == {"count": 50, "ways": 5, "queries": 15, "seed": 3}
    assert record["method"]["origins"]["tau"] == "user"
    for shots in ("1", "5"):
        right = unpack_counts(record["shots"][shots]["right"], 75)
        assert len(right) == 50
        assert record["shots"][shots]["summary"]["mean"] == pytest.approx(100 * right.mean() / 75)
        assert record["shots"][shots]["summary"]["sd"] == pytest.approx(100 * np.std(right, ddof=1) / 75)
    assert str(Path.cwd()) not in json.dumps(record)


def test_json_is_one_document(fsl):
    document = json.loads(fsl("--json", "--shots", 1, "--baseline", "simteen").out)
    assert document["paired"]["baseline"] == "simteen"
    assert document["paired"]["differences"]["1"]["n"] == 50
    assert list(document["shots"]) == ["1"]
    one = json.loads(fsl("--json", "--episodes", 1).out)
    assert one["shots"]["5"]["summary"]["low"] is None  # one episode has no interval


def test_other_ways_and_queries(fsl):
    done = fsl("--ways", 10, "--queries", 3, "--shots", 20, "--shots", 2)
    assert done.code == 0, done.err
    assert "| 10w2s |" in done.out
    assert "| 10w20s |" in done.out


def test_a_method_without_baseline_and_a_composed_one(fsl):
    assert "minus" not in fsl(method="protonet").out
    assert "minus simteen, paired" in fsl(method="simteen+teen").out


def test_published_numbers_are_marked(cli, toy_backbone, toy_bank):
    folder = toy_backbone(bank=toy_bank(train=17, test=6, dataset="cub200"))
    args = ("--dataset", "cub200", "--backbone", folder, "--episodes", 20)
    done = cli("fsl", "--method", "teen", *args)
    assert "| 81.44 |" in done.out
    assert "Published numbers are of another backbone and class split" in done.out
    assert "| 72.99 |" in cli("fsl", "--method", "protonet", *args).out
    assert "published" not in cli("fsl", "--method", "teen", "--set", "tau=4", *args).out


def test_the_classic_split_needs_a_backbone_that_has_not_seen_its_classes(cli, toy_backbone, toy_bank, read):
    folder = toy_backbone(bank=toy_bank(train=17, test=6, dataset="cub200"), protocol="cub200-fsl")
    args = ("--method", "teen", "--dataset", "cub200-fsl", "--backbone", folder, "--episodes", 20)
    assert cli("fsl", *args).code == 0
    record = read_record(Path("runs/cub200-fsl/toy/teen.fsl.json"))
    assert record["method"]["settings"]["shift_weight"] == 0.5  # as on cub200
    card = read(folder / "card.json")
    for trained_for, code in (("cub200", 2), ("cub200-fsl", 0)):
        (folder / "card.json").write_text(json.dumps({**card, "dataset": trained_for, "epochs": 1}))
        assert cli("fsl", *args).code == code
    (folder / "card.json").write_text(json.dumps({**card, "dataset": "cub200", "epochs": 1}))
    assert "was trained on 25 new classes of cub200-fsl" in cli("fsl", *args).error_line


@pytest.mark.parametrize("command", ["run", "fsl", "compare"])
def test_a_protocol_without_sessions_has_episodes_alone(cli, toy_backbone, toy_bank, command):
    folder = toy_backbone(bank=toy_bank(train=17, test=6, dataset="cub200"), protocol="cub200-fsl")
    args = ("--dataset", "cub200-fsl", "--backbone", folder)
    if command == "compare":
        assert "`fscil-bench fsl` plays" in cli("compare", *args).error_line
        for name in ("protonet", "teen"):
            assert cli("fsl", "--method", name, "--episodes", 20, *args).code == 0
        done = cli("compare", *args)
        assert done.code == 0, done.err
        assert "| teen (incomplete) (yours) | protonet (incomplete) (yours) | 20 |" in done.out
        assert "AvgAcc" not in done.out
        return
    done = cli(command, "--method", "teen", *args, *(("--episodes", 5) if command == "fsl" else ("--draws", 2)))
    assert done.code == (2 if command == "run" else 0), done.err
    if command == "run":
        assert "cub200-fsl has no sessions: `fscil-bench fsl` plays" in done.error_line


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--shots", 9), "class plain has 23 images, 24 are needed for 9 shots and 15 queries"),
        (("--ways", 41), "41 ways need as many new classes: cifar100 has 40"),
        (("--ways", 1), "--ways"),
        (("--shots", 0), "--shots"),
        (("--queries", 0), "--queries"),
        (("--episodes", 0), "--episodes"),
        (("--seed", -1), "--seed"),
        (("--set", "taw=1"), "did you mean 'tau'"),
        (("--baseline", "protone"), "did you mean 'protonet'"),
    ],
)
def test_wrong_calls_exit_with_2_and_store_nothing(fsl, args, message):
    done = fsl(*args)
    assert done.code == 2
    assert message in done.error_line
    assert not list(Path("runs").rglob("*.json"))


def test_a_method_for_sessions_alone_is_refused(fsl, monkeypatch):
    from fscil_bench_methods.simteen import SimTEEN

    monkeypatch.setattr(SimTEEN, "episodes", False)
    assert "method simteen does not take part in few-shot episodes" in fsl(method="simteen").error_line


def test_two_runs_at_once(fsl):
    from fscil_bench.results import lock_path

    with exclusive(lock_path(RECORD), "testing"):
        done = fsl()
    assert done.code == 1
    assert "another process is writing teen.fsl.json" in done.error_line


def test_episodes_and_sessions_are_recorded_side_by_side(fsl, cli, tmp_path):
    fsl()
    assert cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", tmp_path / "backbones/toy").code == 0
    assert {path.name for path in FOLDER.iterdir()} == {
        "teen.fsl.json",
        "teen.fscil.json",
        "teen.fscil.predictions.safetensors",
    }
