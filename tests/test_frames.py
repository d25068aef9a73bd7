"""Recorded numbers as pandas tables."""

import json

import numpy as np
import pytest

from fscil_bench.errors import UsageError
from fscil_bench.frames import sessions


def test_every_number_of_a_record_is_there(cli, toy_backbone, read):
    done = cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", "3")
    assert done.code == 0, done.err
    record = read("runs/cifar100/toy/teen.fscil.json")
    frame = sessions("cifar100")
    own = frame[frame.own]
    assert set(own.method) == {"teen"}
    assert set(own.bank_sha256) == {record["backbone"]["bank_sha256"]}
    for metric in ("avg_acc", "hmean", "fpr"):
        table = own.pivot(index="draw", columns="session", values=metric).loc[record["draws"]["names"]]
        expected = np.array(record["draws"]["metrics"]["by_session"][metric], dtype=float)
        np.testing.assert_array_equal(table.to_numpy(), expected)


def test_means_are_those_that_compare_prints(cli):
    shown = json.loads(cli("compare", "protonet", "teen", "--dataset", "cifar100", "--json").out)["rows"]
    frame = sessions("cifar100").query("session == 8 and backbone == 'cifar100-resnet20-short'")
    means = frame.groupby("method").hmean.mean()
    for row in shown:
        assert means[row["label"]] == pytest.approx(row["summary"]["hmean"]["mean"])


def test_an_unknown_dataset_is_named():
    with pytest.raises(UsageError, match="unknown dataset 'cifar10'"):
        sessions("cifar10")
