"""Few-shot episodes on a leaderboard: rows, tables, comparison, and a check that bites."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fscil_bench.backbones.store import home
from fscil_bench.leaderboard.episode_comparison import EpisodeComparison
from fscil_bench.leaderboard.rows import load_rows
from fscil_bench.leaderboard.statistics import episode_difference
from fscil_bench.leaderboard.tables import render_tables
from fscil_bench.records import pack_counts, unpack_counts

UPDATE = ("leaderboard", "update", "--backbone", "toy", "--workers", 1, "--method", "protonet", "--method", "teen")
COUNT = 200


@pytest.fixture(scope="session")
def played(tmp_path_factory, make_backbone, shared_toy_bank):
    """A leaderboard of two methods on a toy backbone with enough images for episodes."""
    from click.testing import CliRunner

    from fscil_bench.cli import main

    place = tmp_path_factory.mktemp("played")
    make_backbone(place / "home" / "backbones" / "toy", shared_toy_bank(train=17, test=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fscil_bench.protocols.MANY_EPISODES", COUNT)
        patch.setenv("FSCIL_BENCH_HOME", str(place / "home"))
        patch.chdir(place)
        CliRunner().invoke(main, [str(word) for word in UPDATE], catch_exceptions=False)
    return place


@pytest.fixture
def board(played, monkeypatch):
    monkeypatch.setattr("fscil_bench.protocols.MANY_EPISODES", COUNT)
    shutil.copytree(played / "home", home())
    shutil.copytree(played / "leaderboards", "leaderboards")
    return Path("leaderboards")


def record_of(board, name="teen"):
    return next(board.rglob(f"{name}.fsl.json"))


def change(path, edit):
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def change_counts(path, edit, shots="1"):
    """Rewrite the counts of a record, and its summary with them."""

    def rewrite(record):
        from fscil_bench.metrics import summarise

        right = unpack_counts(record["shots"][shots]["right"], 75)
        edit(right)
        record["shots"][shots] = {
            "summary": vars(summarise(100 * right.astype(float) / 75)),
            "right": pack_counts(right, 75),
        }

    change(path, rewrite)


def test_every_method_and_variant_gets_both_kinds_of_row(board):
    loaded = load_rows([(board / "records", False)])
    assert loaded.problems == []
    assert {row.label for row in loaded.episodes} == {row.label for row in loaded.rows}
    assert {row.label for row in loaded.episodes} == {"protonet", "teen", "teen variant=paper"}
    assert all(row.complete and row.plan["count"] == COUNT for row in loaded.episodes)


def test_tables_show_the_columns_and_paired_differences(board):
    text = (board / "cifar100.md").read_text()
    row = load_rows([(board / "records", False)]).episodes[0]
    summary = row.summary(5)
    cell = f"{summary.mean:.2f} ± {summary.high - summary.mean:.2f}"
    headline, section = text.split("### Few-shot episodes", 1)
    assert cell in headline
    assert cell in section
    assert "### Paired differences in few-shot episodes, same episodes" in section
    assert f"| teen | protonet | {COUNT} |" in section
    line = next(line for line in (board / "episodes.csv").read_text().splitlines() if line.count(f",{row.label},"))
    assert f",{COUNT}," in line
    header, *lines = (board / "cifar100.csv").read_text().splitlines()
    place = header.split(",").index("5w5s")
    assert {line.split('"')[-1].split(",")[place - header.split(",").index("status") + 1] for line in lines} != {""}
    nested = json.loads((board / "cifar100.json").read_text())
    assert all(set(entry["few_shot"]) == {"5w1s", "5w5s"} for entry in nested)
    costs = (board / "costs.csv").read_text()
    assert "episodes_seconds" in costs
    assert f",{2 * COUNT}," in costs
    assert "seconds" not in (board / "episodes.csv").read_text()


def test_published_values_stand_beside_measured_ones(board):
    loaded = load_rows([(board / "records", False)])
    for row in loaded.episodes:
        row.record["protocol"]["name"] = "miniimagenet"
    text = render_tables([], loaded.episodes)["miniimagenet.md"]
    section = text[text.index("### Few-shot episodes") :]
    assert "published ones are of another backbone and class split" in section
    teen = next(line for line in section.splitlines() if line.startswith("| teen |"))
    assert teen.endswith("| 65.70 | 83.11 |")
    assert next(line for line in section.splitlines() if line.startswith("| teen variant")).endswith("| – | – |")


def test_update_leaves_unchanged_records_alone_and_mends_others(board, cli):
    stamps = {path: path.stat().st_mtime_ns for path in board.rglob("*.*")}
    assert "6 unchanged" in cli(*UPDATE).out
    assert {path: path.stat().st_mtime_ns for path in board.rglob("*.*")} == stamps
    change(record_of(board), lambda record: record["shots"]["1"]["summary"].update(mean=1.0))
    assert cli("check").code == 1
    done = cli(*UPDATE, "--kind", "fsl")
    assert "1 measured, 2 unchanged" in done.out
    assert "few-shot episodes: measured" in done.err
    assert cli("check").code == 0


def test_update_measures_rows_with_other_settings_too(board, cli):
    args = ("--dataset", "cifar100", "--backbone", "toy", "--out", board / "records")
    assert cli("fsl", "--method", "teen", "--set", "tau=4", "--episodes", 10, *args).code == 0
    assert "1 measured" in cli(*UPDATE).out
    assert json.loads(next(board.rglob("teen-*.fsl.json")).read_text())["episodes"]["count"] == COUNT


def test_check_holds_on_a_fresh_board(board, cli):
    for args in ((), ("--quick",)):
        done = cli("check", *args)
        assert done.code == 0, done.out
        assert "6 rows hold, 0 do not" in done.out


def test_a_moved_mean_is_named(board, cli):
    def fewer(right):
        right[right > 0] -= 1

    change_counts(record_of(board), fewer)
    for args in ((), ("--quick",)):
        done = cli("check", "--json", *args)
        assert done.code == 1
        moved = [row for row in json.loads(done.out)["rows"] if not row["holds"]]
        assert [(row["method"], row["kind"]) for row in moved] == [("teen", "fsl")]
        assert moved[0]["moved"][0]["metric"] == "5w1s"
        assert moved[0]["moved"][0]["difference"] == pytest.approx(100 / 75)
        assert moved[0]["changed"] == []


def test_other_counts_with_the_same_mean_are_named(board, cli):
    def swap(right):
        right[:10] += 1
        right[10:20] -= 1

    change_counts(record_of(board), swap)
    done = cli("check", "--method", "teen")
    assert done.code == 1
    assert "teen on cifar100 in few-shot episodes, toy: 20 of 200 episodes of 5w1s have other counts" in done.out


@pytest.mark.parametrize(
    ("gaps", "more"), [([1], False), ([-1], False), ([2], True), ([1, -1], True), ([1] * 10, True), ([0], False)]
)
def test_one_answer_in_a_thousand_episodes_may_be_a_tie(gaps, more):
    from fscil_bench.leaderboard.check_episodes import _more_than_ties

    before = np.full(1500, 40)
    after = before.copy()
    after[: len(gaps)] += gaps
    assert _more_than_ties(before, after) is more


def test_changed_code_is_named(board, cli, monkeypatch):
    from fscil_bench_methods.teen import TEEN

    change(record_of(board), lambda record: record["method"].update(code_sha256="0"))
    monkeypatch.setattr(TEEN, "calibrate", lambda self, new, base: -new)
    done = cli("check", "--method", "teen")
    assert done.code == 1
    assert "| teen | cifar100 | toy | 5w1s, mean, 200 episodes | code |" in done.out


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda r: r["protocol"].update(sha256="0"), "another cifar100 split"),
        (lambda r: r["backbone"].update(bank_sha256="0"), "another bank of toy"),
        (lambda r: r["episodes"].update(count=199), "1 shots have 200 counts for 199 episodes"),
        (lambda r: r["episodes"].pop("ways"), "damaged (KeyError: 'ways')"),
        (lambda r: r["shots"]["5"].update(right="?"), "damaged"),
        (lambda r: r["shots"]["5"].update(right=pack_counts(np.full(COUNT, 76), 75)), "more than 75 right answers"),
        (lambda r: r["shots"]["1"]["summary"].pop("sd"), "damaged (KeyError: 'sd')"),
        (lambda r: r.pop("compared_with"), "damaged (KeyError: 'compared_with')"),
        (lambda r: r.update(shots={}), "no shots"),
    ],
)
def test_records_that_do_not_fit_are_named(board, cli, edit, message):
    change(record_of(board), edit)
    done = cli("check", "--quick")
    assert done.code == 1
    assert message in done.out
    assert "5 rows hold" in done.out


def test_a_failing_method_becomes_a_row_and_recovers(board, cli, monkeypatch):
    from fscil_bench_methods.teen import TEEN

    def breaks(*_):
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(TEEN, "calibrate", breaks)
        done = cli(*UPDATE, "--kind", "fsl")
        assert done.code == 1
    assert not record_of_or_none(board)
    assert "teen (failed: RuntimeError: no luck)" in (board / "cifar100.md").read_text()
    assert len(load_rows([(board / "records", False)]).rows) == 3  # the sessions are as they were
    assert cli("check").code == 1
    assert cli(*UPDATE, "--kind", "fsl").code == 0
    assert "failed:" not in (board / "cifar100.md").read_text()


def record_of_or_none(board):
    return next(board.rglob("teen.fsl.json"), None)


def test_a_bank_too_small_for_episodes_is_skipped_and_said(cli, toy_backbone):
    done = cli(*UPDATE[:2], "--backbone", toy_backbone(), "--workers", 1, "--method", "protonet")
    assert done.code == 0, done.err
    assert "1 measured, 1 skipped" in done.out
    assert "skipped: class plain has 11 images, 20 are needed for 5 shots and 15 queries" in done.err


def test_compare_shows_recorded_episodes(board, cli):
    shutil.move(board / "records", "runs")
    done = cli("compare", "protonet", "teen", "--backbone", "toy")
    assert done.code == 0, done.err
    assert "| 5w1s | 5w5s | draws |" in done.out
    assert f"| teen (yours) | protonet (yours) | {COUNT} |" in done.out
    data = json.loads(cli("compare", "teen", "--backbone", "toy", "--json").out)["episodes"]
    assert {row["label"] for row in data["rows"]} == {"protonet", "teen", "teen variant=paper"}
    pair = next(pair for pair in data["paired"] if pair["label"] == "teen")
    assert (pair["minus"], pair["difference"]["1"]["n"]) == ("protonet", COUNT)
    change(Path("runs/cifar100/toy/teen.fsl.json"), lambda record: record["method"].update(code_sha256="0"))
    stale = cli("compare", "teen", "--backbone", "toy")
    assert "teen.fsl.json was measured with other code: `fscil-bench fsl` measures it anew" in stale.err
    assert "| teen (yours) | protonet (yours) |" not in stale.out


def test_pairs_are_the_episodes_that_both_have_played(board):
    rows = {row.label: row for row in load_rows([(board / "records", False)]).episodes}
    teen, plain = rows["teen"], rows["protonet"]
    gaps = teen.accuracy(1) - plain.accuracy(1)
    assert episode_difference(teen, plain, 1).summary.mean == pytest.approx(gaps.mean())
    assert episode_difference(teen, plain, 2) is None
    short = replace(plain, record=json.loads(json.dumps(plain.record)))
    short.record["episodes"]["count"] = 40
    short.record["shots"]["1"]["right"] = pack_counts(plain.right(1)[:40], 75)
    assert episode_difference(teen, short, 1).summary.mean == pytest.approx(gaps[:40].mean())
    assert episode_difference(teen, short, 1).summary.n == 40
    for key in ("seed", "ways", "queries"):
        other = replace(plain, record=json.loads(json.dumps(plain.record)))
        other.record["episodes"][key] += 1
        assert episode_difference(teen, other, 1) is None
        assert not other.complete


def test_a_method_is_paired_with_what_its_paper_is_measured_against(board):
    rows = load_rows([(board / "records", False)]).episodes
    for row in rows:
        row.record["compared_with"] = ["teen", "nothing"] if row.label == "teen variant=paper" else []
    pairs = EpisodeComparison.of(rows).pairs
    assert {(pair.row.label, pair.minus.label) for pair in pairs} == {
        ("teen", "protonet"),
        ("teen variant=paper", "protonet"),
        ("teen variant=paper", "teen"),
    }
    assert all(0 <= gap.p <= 1 for pair in pairs for gap in pair.differences.values())
