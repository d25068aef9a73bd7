"""Tiny data made on the spot: no network, no downloads, seconds of training."""

import contextlib
import io
import json
import os
import subprocess
import sys
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fscil_bench.backbones.extract import session0_accuracy
from fscil_bench.backbones.store import SCHEMA, bank_name
from fscil_bench.banks import Bank, write_bank
from fscil_bench.files import sha256_file, write_json
from fscil_bench.protocols import load_protocol

TRAIN, TEST, DIM = 8, 3, 16
QUICK = ("protonet", "simteen", "teen")  # measured where tests are of the leaderboard, not of methods


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one line that says what went wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1, self.err
        return lines[0]


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    """Every test has its own home and working folder."""
    monkeypatch.setenv("FSCIL_BENCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FSCIL_BENCH_DATA", raising=False)
    place = tmp_path / "cwd"
    place.mkdir()
    monkeypatch.chdir(place)


class InThisProcess(Executor):
    """Stands for a pool of processes: does at once what it is given."""

    def __init__(self, *_, **__):
        pass

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(scope="session", autouse=True)
def rows_measured_here():
    """Rows are measured in this process, which takes less time than one each, and where tests can patch methods."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fscil_bench.leaderboard.measuring.ProcessPoolExecutor", InThisProcess)
        yield


@pytest.fixture
def cli(monkeypatch):
    """Run the command line in this process, as the console script would."""
    from fscil_bench.cli import entry

    def call(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fscil-bench", *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                entry()
            except SystemExit as leave:
                code = int(leave.code or 0)
        return Outcome(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def cli_process():
    """Run the command line in a process of its own."""

    def call(*args: object) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "fscil_bench", *map(str, args)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


def make_toy_bank(seed: int = 0, dataset: str = "cifar100", train: int = TRAIN, test: int = TEST) -> Bank:
    """A bank of a protocol's classes with random, class-dependent features."""
    protocol = load_protocol(dataset)
    rng = np.random.default_rng(seed)
    centres = rng.random((len(protocol.classes), DIM))
    ids, labels, is_test = [], [], []
    for split, count in (("train", train), ("test", test)):
        for label, name in enumerate(protocol.classes):
            ids += [f"{split}/{name}/{k:03d}.png" for k in range(count)]
            labels += [label] * count
            is_test += [split == "test"] * count
    features = centres[labels] + 0.9 * rng.random((len(ids), DIM))
    return Bank(
        dataset=protocol.dataset,
        classes=protocol.classes,
        features=torch.from_numpy(features).to(torch.float16),
        labels=np.array(labels),
        is_test=np.array(is_test),
        ids=tuple(ids),
        head={"weight": torch.from_numpy(centres[: protocol.base]).float(), "scale": torch.tensor(16.0)},
        metadata={},
    )


def make_toy_backbone(folder: Path, bank: Bank, protocol: str | None = None) -> Path:
    """A backbone folder with a bank and no weights."""
    protocol = protocol or bank.dataset
    path = folder / bank_name(bank.dataset)
    write_bank(path, bank)
    card = {
        "schema": SCHEMA,
        "dataset": protocol,
        "network": "toy",
        "recipe": {"name": "toy", "scale": 16.0},
        "epochs": 0,
        "seed": 0,
        "selection": {"rule": "last", "epoch": 0, "leaky": False},
        "augmentation": [],
        "preprocessing": {},
        "pretraining": "none",
        "pretraining_overlap": {"kind": "none", "new_classes": []},
        "curve": [],
        "session0": {protocol: session0_accuracy(bank, load_protocol(protocol))},
        "files": {path.name: sha256_file(path)},
    }
    write_json(folder / "card.json", card)
    return folder


@pytest.fixture
def toy_bank():
    return make_toy_bank


@pytest.fixture(scope="session")
def shared_toy_bank():
    """The same, for fixtures that many tests share."""
    return make_toy_bank


@pytest.fixture(scope="session")
def make_backbone():
    """Makes a backbone folder of a bank in a given place."""
    return make_toy_backbone


@pytest.fixture
def toy_backbone(tmp_path):
    """Makes a backbone folder with a toy bank; returns the folder."""

    def make(name: str = "toy", bank: Bank | None = None, protocol: str | None = None) -> Path:
        return make_toy_backbone(tmp_path / "backbones" / name, bank or make_toy_bank(), protocol)

    return make


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """A leaderboard of a few quick methods on a toy backbone, measured once; tests copy it. home/ and leaderboards/."""
    from click.testing import CliRunner

    from fscil_bench.cli import main

    place = tmp_path_factory.mktemp("measured")
    make_toy_backbone(place / "home" / "backbones" / "toy", make_toy_bank())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSCIL_BENCH_HOME", str(place / "home"))
        patch.chdir(place)
        methods = [word for name in QUICK for word in ("--method", name)]
        args = ["leaderboard", "update", *methods, "--backbone", "toy", "--workers", "1"]
        CliRunner().invoke(main, args, catch_exceptions=False)
    return place


@pytest.fixture(scope="session")
def tiny_cifar(tmp_path_factory):
    """A data root with an image folder of all 100 classes: 6 training and 2 test images each, told apart by colour."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for number, name in enumerate(load_protocol("cifar100").classes):
        colour = np.random.default_rng(number).integers(0, 200, size=(4, 4, 3))
        pattern = np.kron(colour, np.ones((8, 8, 1)))
        for split, count in (("train", 6), ("test", 2)):
            folder = root / "cifar100" / split / name
            folder.mkdir(parents=True)
            for k in range(count):
                pixels = (pattern + rng.integers(0, 55, size=(32, 32, 3))).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{name}_s_{k:06d}.png")
    return root


@pytest.fixture(scope="session")
def quick():
    return QUICK


@pytest.fixture
def flip_bit():
    """Damage a file: change one bit in its middle."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    return damage


@pytest.fixture
def read():
    return lambda path: json.loads(Path(path).read_text())
