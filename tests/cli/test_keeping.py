"""A record is not lost to a shorter run."""

import json
from pathlib import Path

import pytest

RECORD = Path("runs/cifar100/toy/teen.fscil.json")
EPISODES = Path("runs/cifar100/toy/teen.fsl.json")


@pytest.fixture
def call(cli, toy_backbone, toy_bank):
    """`run` and `fsl` of teen on a toy backbone."""
    folder = toy_backbone(bank=toy_bank(train=17, test=6))

    def invoke(command, *args):
        done = cli(command, "--method", "teen", "--dataset", "cifar100", "--backbone", folder, *args)
        assert done.code == 0, done.err
        return done

    return invoke


def change(path, edit):
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))


def test_a_shorter_run_leaves_a_full_record(call):
    call("run", "--draws", 6)
    before = RECORD.read_bytes()
    done = call("run", "--draws", 2)
    assert f"Note: {RECORD} is left as it is: it holds these 2 draws among its 6 draws" in done.err
    assert "AvgAcc, mean of 2 draws" in done.out  # what was asked for is shown
    assert RECORD.read_bytes() == before
    assert "Note:" not in call("run", "--draws", 6).err
    assert "Note:" not in call("run", "--draws", 7).err
    assert len(json.loads(RECORD.read_text())["draws"]["names"]) == 7


def test_draws_that_get_lost_are_named(call):
    call("run", "--draws", 6)
    done = call("run", "--draw", "random:9")
    assert f"Note: {RECORD} held 6 draws; it now holds 1 draw instead" in done.err
    assert json.loads(RECORD.read_text())["draws"]["names"] == ["random:9"]


def test_what_other_code_measured_is_replaced_and_said_so(call):
    call("run", "--draws", 6)
    change(RECORD, lambda record: record["method"].update(code_sha256="0"))
    assert "held 6 draws (by other code or of another bank)" in call("run", "--draws", 2).err
    assert len(json.loads(RECORD.read_text())["draws"]["names"]) == 2


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            lambda path: change(path, lambda record: record.update(schema="fscil-bench/record/2")),
            "fscil-bench/record/2",
        ),
        (lambda path: path.write_text(path.read_text()[:500]), "is damaged"),
    ],
)
def test_a_record_that_cannot_be_read_is_set_aside(call, edit, said):
    call("run", "--draws", 3)
    edit(RECORD)
    before = RECORD.read_bytes()
    done = call("run", "--draws", 2)
    assert said in done.err
    assert f"the old file is now {RECORD}.old" in done.err
    assert Path(f"{RECORD}.old").read_bytes() == before
    assert len(json.loads(RECORD.read_text())["draws"]["names"]) == 2


def test_fewer_episodes_leave_a_full_record(call):
    call("fsl", "--episodes", 30)
    before = EPISODES.read_bytes()
    for fewer in (("--episodes", 10), ("--episodes", 30, "--shots", 5)):
        assert f"Note: {EPISODES} is left as it is" in call("fsl", *fewer).err
        assert EPISODES.read_bytes() == before
    done = call("fsl", "--episodes", 10, "--seed", 1)
    assert "held 30 episodes of 5w1s, 5w5s (seed 0); it now holds 10 episodes of 5w1s, 5w5s (seed 1)" in done.err
    assert json.loads(EPISODES.read_text())["episodes"]["seed"] == 1


def test_more_episodes_replace_fewer_without_a_word(call):
    call("fsl", "--episodes", 10)
    assert "Note:" not in call("fsl", "--episodes", 20).err
    assert json.loads(EPISODES.read_text())["episodes"]["count"] == 20
