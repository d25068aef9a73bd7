"""Methods are found by entry point, whoever provides them."""

import linecache
from importlib.metadata import EntryPoint

import pytest

from fscil_bench import registry
from fscil_bench.errors import FscilError, UsageError


@pytest.fixture
def entries(monkeypatch):
    """Replaces the entry points that are found."""

    def replace(*found: tuple[str, str]) -> None:
        points = [EntryPoint(name, value, registry.GROUP) for name, value in found]
        monkeypatch.setattr(registry, "entry_points", lambda group: points)
        registry._found.cache_clear()

    yield replace
    monkeypatch.undo()
    registry._found.cache_clear()


def test_unknown_methods_get_a_suggestion():
    with pytest.raises(UsageError, match="unknown method 'tean': did you mean 'teen'"):
        registry.load_method("tean")


def test_a_name_clash_is_an_error(entries):
    entries(("teen", "a:A"), ("teen", "b:B"))
    with pytest.raises(FscilError, match="two methods are called 'teen': a:A and b:B"):
        registry.method_names()


def test_a_broken_plugin_is_named(entries):
    entries(("mine", "no_such_module:Mine"))
    with pytest.raises(FscilError, match=r"method 'mine' \(no_such_module:Mine\) does not load"):
        registry.load_method("mine")


def test_a_plugin_of_another_kind_is_named(entries):
    entries(("mine", "pathlib:Path"))
    with pytest.raises(FscilError, match="not a subclass"):
        registry.load_method("mine")


def test_a_broken_plugin_is_listed_as_such(entries, cli):
    entries(("mine", "no_such_module:Mine"), ("teen", "fscil_bench_methods.teen:TEEN"))
    done = cli("ls", "methods")
    assert done.code == 0
    assert "| mine | does not load" in done.out
    assert "| teen | Pull" in done.out


def test_a_forgotten_dataclass_is_named(entries, tmp_path, monkeypatch):
    (tmp_path / "forgetful.py").write_text(
        "from fscil_bench.method import PrototypeMethod, setting\n"
        "class Mine(PrototypeMethod):\n    alpha: float = setting(0.5, 'x')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entries(("mine", "forgetful:Mine"))
    with pytest.raises(FscilError, match="lacks @dataclass"):
        registry.load_method("mine")


def test_plain_fields_are_settings_too(entries, tmp_path, monkeypatch):
    (tmp_path / "plainly.py").write_text(
        "from dataclasses import dataclass\nfrom fscil_bench.method import PrototypeMethod\n"
        "@dataclass(kw_only=True)\nclass Mine(PrototypeMethod):\n    alpha: float = 0.5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entries(("mine", "plainly:Mine"))
    assert registry.configure("mine", "cifar100").settings == {"alpha": 0.5}


def test_descriptions_come_from_the_source():
    found = registry.describe("teen")
    assert found.summary == "Pull new prototypes towards the base prototypes they resemble."
    assert "NeurIPS 2023" in found.facts["paper"]
    assert found.package == "fscil-bench"


@pytest.mark.parametrize("name", registry.method_names())
def test_every_method_says_what_it_is(name):
    found = registry.describe(name)
    assert found.summary.endswith(".")
    assert found.facts["paper"]


def test_the_checksum_of_a_methods_code_follows_its_imports(tmp_path, monkeypatch):
    """A helper of the method's own package, or of ours, is code behind its numbers; other libraries are not."""
    from fscil_bench.code import code_sha256

    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("def half(x):\n    return x / 2\n")
    (package / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom fscil_bench.method import PrototypeMethod\nfrom .helper import half\n"
        "@dataclass(kw_only=True)\nclass Mine(PrototypeMethod):\n    def calibrate(self, new, base):\n"
        "        return half(new)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from theirs.mine import Mine

    before = code_sha256(Mine())
    (package / "helper.py").write_text("def half(x):\n    # in words\n    return x / 2\n")
    linecache.clearcache()
    assert code_sha256(Mine()) == before
    (package / "helper.py").write_text("def half(x):\n    return x / 3\n")
    linecache.clearcache()
    assert code_sha256(Mine()) != before
