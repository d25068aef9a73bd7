"""What records say of their methods is what the methods declare."""

import json
from pathlib import Path

from fscil_bench.leaderboard.declared import declare_anew
from fscil_bench.leaderboard.rows import shipped_root


def test_shipped_records_say_what_their_methods_declare(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("fscil_bench.leaderboard.declared.write_json", lambda path, _: written.append(path.name))
    declare_anew(shipped_root() / "records")
    assert written == [], "run `fscil-bench leaderboard update --tables-only`"


def test_declared_facts_are_brought_up_to_date_and_numbers_stay(cli, toy_backbone):
    place = toy_backbone()
    for args in (("--draws", "2"), ("--set", "tau=3", "--draws", "2")):
        assert cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", place, *args).code == 0
    paths = sorted(Path("runs").rglob("teen*.fscil.json"))
    before = [path.read_bytes() for path in paths]
    assert len(paths) == 2
    assert declare_anew(Path("runs")) == []
    for path in paths:
        record = json.loads(path.read_text())
        record["method"] |= {"privileges": ["all_data"], "deviations": ["none"], "exemplars": 3}
        path.write_text(json.dumps(record))
    assert sorted(declare_anew(Path("runs"))) == paths
    assert [path.read_bytes() for path in paths] == before


def test_a_record_of_other_settings_is_left_alone(cli, toy_backbone):
    assert (
        cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", "2").code == 0
    )
    (path,) = Path("runs").rglob("teen.fscil.json")
    record = json.loads(path.read_text())
    record["method"]["settings"]["tau"] = 15.0  # the default of an older version
    record["method"]["deviations"] = ["another"]
    path.write_text(json.dumps(record))
    assert declare_anew(Path("runs")) == []
