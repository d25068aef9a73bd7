"""Curves of costly methods are kept draw by draw, and taken over only where they still hold."""

import pytest
import torch

from fscil_bench.analysis.kept_curves import curves_of
from fscil_bench.analysis.offset import trace
from fscil_bench.evaluate import Arena
from fscil_bench.registry import configure


@pytest.fixture
def arena(toy_backbone, monkeypatch):
    monkeypatch.setattr("fscil_bench_methods.teen.TEEN.batched", False)
    monkeypatch.setattr("fscil_bench_methods.teen.TEEN.costly", ("fscil",))
    return Arena("cifar100", str(toy_backbone()))


@pytest.fixture
def walks(monkeypatch):
    """Which draws are walked through."""
    from fscil_bench.analysis import offset

    seen = []
    original = offset.final_scores

    def counted(method, split, draws, advance):
        seen.extend(draw.name for draw in draws)
        return original(method, split, draws, advance)

    monkeypatch.setattr(offset, "final_scores", counted)
    return seen


def draws(arena, count):
    return arena.draws(f"random:{seed}" for seed in range(count))


def curves(arena, count, folder, told=lambda n: None, **given):
    return curves_of(arena, configure("teen", "cifar100", given), draws(arena, count), folder, told)


def test_only_draws_that_are_not_on_disk_are_measured(arena, walks, tmp_path):
    told = []
    curves(arena, 2, tmp_path)
    got = curves(arena, 4, tmp_path, told.append)
    assert walks == ["random:0", "random:1", "random:2", "random:3"]
    assert sum(told) == 4
    whole = trace(configure("teen", "cifar100").method, arena.split, draws(arena, 4))
    assert got.draws == whole.draws
    torch.testing.assert_close((got.base, got.new), (whole.base, whole.new), rtol=0, atol=0)
    walks.clear()
    assert curves(arena, 3, tmp_path).draws == ("random:0", "random:1", "random:2")
    assert walks == []


def test_a_call_that_was_cut_off_goes_on(arena, walks, tmp_path):
    def cut(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        curves(arena, 3, tmp_path, cut)  # after the first draw
    walks.clear()
    curves(arena, 3, tmp_path)
    assert walks == ["random:1", "random:2"]


def test_nothing_stale_is_taken_over(arena, walks, tmp_path, monkeypatch):
    curves(arena, 1, tmp_path)
    curves(arena, 1, tmp_path, tau="4")
    assert walks == ["random:0"] * 2  # other settings
    monkeypatch.setattr("fscil_bench.analysis.kept_curves.code_sha256", lambda method: "other code")
    curves(arena, 1, tmp_path)
    assert walks == ["random:0"] * 3


def test_a_damaged_file_is_named_and_measured_anew(arena, walks, tmp_path, capsys):
    curves(arena, 1, tmp_path)
    (path,) = tmp_path.glob("teen-*.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    curves(arena, 1, tmp_path)
    assert walks == ["random:0"] * 2
    assert f"Measured anew: {path.name}" in capsys.readouterr().err
    curves(arena, 1, tmp_path)
    assert walks == ["random:0"] * 2


def test_quick_methods_leave_no_file(arena, tmp_path):
    curves_of(arena, configure("simteen", "cifar100"), draws(arena, 1), tmp_path / "curves", lambda n: None)
    assert not (tmp_path / "curves").exists()
