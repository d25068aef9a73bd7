"""A leaderboard on a toy backbone."""

import json
import shutil
from pathlib import Path

import pytest

from fscil_bench.backbones.store import home


@pytest.fixture
def few_methods(quick, monkeypatch):
    """A few quick methods stand for all that could be measured."""
    for module in ("fscil_bench.cli.leaderboard", "fscil_bench.leaderboard.measuring"):
        monkeypatch.setattr(f"{module}.loadable", lambda: list(quick))


@pytest.fixture
def installed(measured):
    """A toy backbone in the user's store, so that its id is known."""
    shutil.copytree(measured / "home", home())


@pytest.fixture
def board(measured, installed):
    """A leaderboard on the toy backbone: its root."""
    shutil.copytree(measured / "leaderboards", "leaderboards")
    return Path("leaderboards")


@pytest.fixture
def change():
    """Rewrites a JSON file."""

    def rewrite(path, edit):
        data = json.loads(path.read_text())
        edit(data)
        path.write_text(json.dumps(data))

    return rewrite


@pytest.fixture
def shift():
    """Moves the numbers of a record."""

    def moved(record, offset):
        record["draws"]["metrics"]["by_session"]["avg_acc"][3][5] += offset

    return moved
