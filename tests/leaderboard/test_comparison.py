"""What a comparison shows beside numbers: who may be compared with whom, and what each row was allowed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fscil_bench.backbones.store import home
from fscil_bench.leaderboard.comparison import Comparison
from fscil_bench.leaderboard.episode_comparison import EpisodeComparison
from fscil_bench.leaderboard.episode_tables import episode_cells
from fscil_bench.leaderboard.rows import EpisodeRow, Row, ranked
from fscil_bench.metrics import DEFINITIONS
from fscil_bench.records import pack_counts
from fscil_bench.words import memory_and_privileges


def facts(name, kind, baseline, privileges, gain):
    return {
        "kind": kind,
        "method": {
            "name": name,
            "settings": {"gain": gain},
            "origins": {"gain": "code"},
            "baseline": baseline,
            "costly": False,
            "privileges": list(privileges),
            "exemplars": 0,
        },
        "protocol": {"name": "cifar100"},
        "backbone": {"id": "toy", "bank_sha256": "0", "pretraining": "none", "overlap": {"kind": "none"}},
    }


def row(name, gain=0.0, *, own=False, draws=100, privileges=(), baseline="plain"):
    """A row whose numbers are those of `plain` plus about `gain`."""
    noise = np.random.default_rng(sum(map(ord, name))).normal(size=draws)
    plain = np.random.default_rng(0).normal(50, 1, size=draws)
    values = (plain + gain + noise * (name != "plain"))[:, None].tolist()
    record = facts(name, "fscil", None if name == "plain" else baseline, privileges, gain) | {
        "standard": None,
        "draws": {
            "names": [f"random:{seed}" for seed in range(draws)],
            "metrics": {"by_session": dict.fromkeys(DEFINITIONS, values)},
        },
    }
    return Row(Path(name), record, own)


def episodes(name, right=40, *, own=False, count=10_000, compared_with=()):
    """A row of episodes with about `right` answers right of 75."""
    rng = np.random.default_rng(sum(map(ord, name)))
    counts = {
        shots: pack_counts(right + rng.integers(-9, 10, size=count).astype(np.uint16), 75) for shots in ("1", "5")
    }
    record = facts(name, "fsl", None if name == "plain" else "plain", (), 0.0) | {
        "compared_with": list(compared_with),
        "episodes": {"count": count, "ways": 5, "queries": 15, "seed": 0},
        "shots": {shots: {"right": packed} for shots, packed in counts.items()},
    }
    return EpisodeRow(Path(name), record, own)


SHIPPED = [row("plain"), row("better", 0.5), row("level", 0.1)]


def p_values(rows):
    return {
        line.row.shown: {metric: gap.p for metric, gap in line.differences.items()}
        for line in Comparison.of(rows, None, "hmean").lines
    }


def test_own_rows_do_not_move_the_p_values_of_shipped_rows():
    alone = p_values(SHIPPED)
    mine = [row(f"mine{i}", 0.05 * i, own=True, baseline="level") for i in range(8)]
    together = p_values([*SHIPPED, *mine])
    assert {name: together[name] for name in alone} == alone
    assert all(0 <= p <= 1 for one in mine for p in together[f"{one.label} (yours)"].values())


def test_incomplete_rows_are_not_tested_and_move_no_p_value():
    alone = p_values(SHIPPED)
    short = row("short", 0.3, draws=20)
    together = p_values([*SHIPPED, short])
    assert {name: together[name] for name in alone} == alone
    assert all(np.isnan(p) for p in together["short (incomplete)"].values())
    comparison = Comparison.of([*SHIPPED, short], None, "hmean")
    cells = next(cells for cells in comparison.difference_cells() if cells[0] == "short (incomplete)")
    assert cells[1] == "20"
    assert cells[3::2] == ["–"] * 4
    assert all(cell != "–" for cell in cells[2::2])  # the differences themselves are shown
    assert json.loads(json.dumps(comparison.as_data()))["rows"][-1]["difference"]["hmean"]["p_holm"] is None


def test_episodes_are_tested_in_the_same_families():
    def found(rows):
        return {
            (pair.row.shown, pair.minus.shown): [gap.p for gap in pair.differences.values()]
            for pair in EpisodeComparison.of(rows).pairs
        }

    shipped = [episodes("plain"), episodes("level", compared_with=["mine"])]
    mine = [episodes("mine", 41, own=True), episodes("short", 41, count=50)]
    alone, together = found(shipped), found([*shipped, *mine])
    assert {names: together[names] for names in alone} == alone
    assert 0 <= together["level", "mine (yours)"][0] <= 1  # a test with an own row, though the row is shipped
    assert np.isnan(together["short (incomplete)", "plain"]).all()


def test_references_are_marked_and_ranked_after_the_others():
    oracle, short = row("oracle", 30, privileges=["all_data"]), row("short", 20, draws=20)
    order = ranked([oracle, short, *SHIPPED])
    assert [one.shown for one in order][-2:] == ["short (incomplete)", "oracle (reference)"]
    assert order[0].method == "better"


def test_what_a_method_uses_has_one_form():
    assert memory_and_privileges([], 0) == "none"
    assert memory_and_privileges(["all_data"], 0) == "all_data"
    assert memory_and_privileges(["exemplars", "total_classes"], 5) == "exemplars (5), total_classes"


def test_few_shot_numbers_are_joined_with_rows_of_the_same_side():
    shipped, own = episodes("better"), episodes("better", 50, own=True)
    for one in (shipped, own):
        one.record["method"]["settings"] = {"gain": 0.5}
    theirs, mine = row("better", 0.5), row("better", 0.5, own=True)
    assert episode_cells(theirs, [own, shipped])[0].startswith("53.")
    assert episode_cells(mine, [shipped, own])[0].startswith("66.")
    assert episode_cells(mine, [shipped]) == ["–", "–"]


@pytest.fixture
def compare(measured, cli, monkeypatch):
    """`compare` where a leaderboard on a toy backbone is what comes with the package; its records may be edited."""
    shutil.copytree(measured / "home", home())
    shutil.copytree(measured / "leaderboards", "leaderboards")
    monkeypatch.setattr("fscil_bench.leaderboard.comparison.shipped_root", lambda: Path("leaderboards"))

    def call(*args, **edits):
        for name, edit in edits.items():
            path = next(Path("leaderboards").rglob(f"{name}.fscil.json"))
            record = json.loads(path.read_text())
            edit(record)
            path.write_text(json.dumps(record))
        done = cli("compare", "protonet", "teen", "simteen", "--backbone", "toy", *args)
        assert done.code == 0, done.err
        return done.out

    return call


def test_the_main_table_says_what_each_row_may_use(compare):
    out = compare(
        simteen=lambda record: record["method"].update(privileges=["all_data"]),
        teen=lambda record: record["method"].update(privileges=["exemplars"], exemplars=5),
    )
    main = out.split("\n\n")[1].splitlines()
    assert main[0].startswith("| method | memory and privileges | AvgAcc |")
    assert any(line.startswith("| teen | exemplars (5) |") for line in main)
    assert any(line.startswith("| protonet | none |") for line in main)
    assert main[-1].startswith("| simteen (reference) | all_data |")
    assert "\n- all_data: learns each new class from all its training images" in out
    assert "\n- exemplars (N): keeps N images of each new class" in out
    assert "total_classes" not in out
    assert "one family, and those with a row of your own another" in out
    assert "Pretraining" not in out


def test_few_shot_columns_are_there_where_a_row_has_episodes_and_dashes_are_explained(cli, toy_backbone, toy_bank):
    of = ("--dataset", "cifar100", "--backbone", toy_backbone(bank=toy_bank(train=17, test=6)))
    assert "5w1s" not in cli("compare", "teen", *of).out
    assert cli("fsl", "--method", "teen", "--episodes", 5, *of).code == 0
    out = cli("compare", "teen", *of).out  # 5 episodes are no full row
    assert "| – | – | 100 |" in out
    assert "\n- – in 5w1s and 5w5s: no full row of few-shot episodes on record" in out


def test_json_says_what_the_numbers_are_and_of_whom(compare):
    data = json.loads(compare("--json", teen=lambda record: record["method"].update(privileges=["all_data"])))
    assert data["dataset"] == "cifar100"
    assert data["backbone"] == "toy"
    assert {"avg_acc", "hmean", "pd", "mean_acc", "p_holm", "episodes"} <= set(data["definitions"])
    teen = next(one for one in data["rows"] if one["label"] == "teen")
    assert teen["privileges"] == ["all_data"]
    assert teen["exemplars"] == 0
    assert teen["pretraining"] == "none"
    assert teen["overlap"] == {"kind": "none", "new_classes": []}
    assert data["rows"][-1]["label"] == "teen"


def test_pretraining_that_has_seen_new_classes_is_named(cli, toy_backbone, toy_bank, read):
    folder = toy_backbone(bank=toy_bank(train=17, test=6))
    card = read(folder / "card.json")
    card["pretraining"] = "imagenet1k"
    card["pretraining_overlap"] = {"kind": "images", "new_classes": ["x"], "note": "it has birds"}
    (folder / "card.json").write_text(json.dumps(card))
    note = "- Pretraining of the backbone: imagenet1k; overlap with new classes or test images: images (it has birds)\n"
    of = ("--dataset", "cifar100", "--backbone", folder)
    assert note in cli("run", "--method", "teen", "--draws", 2, *of).out
    assert note in cli("fsl", "--method", "teen", "--episodes", 5, *of).out
    assert cli("compare", "teen", *of).out.count(note) == 1
