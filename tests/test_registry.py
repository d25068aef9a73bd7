"""Methods are found by entry point, whoever provides them."""

import ast
import inspect
import json
import linecache
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fscil_bench import registry
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Method
from fscil_bench.settings import as_text


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
    found = registry.configure("mine", "cifar100")
    assert found.settings == {"alpha": 0.5}
    assert found.origins == {"alpha": "own"}  # no paper and no code has been named


@pytest.mark.parametrize("declared", ["exemplars = 5", "privileges = ('exemplars',)"])
def test_exemplars_are_declared_by_name_and_number(entries, tmp_path, monkeypatch, declared):
    module = f"hoarding_{len(declared)}"
    (tmp_path / f"{module}.py").write_text(
        f"from fscil_bench.method import PrototypeMethod\nclass Mine(PrototypeMethod):\n    {declared}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entries(("mine", f"{module}:Mine"))
    with pytest.raises(FscilError, match="names that privilege and their number, both or neither"):
        registry.load_method("mine")


def test_descriptions_come_from_the_source():
    found = registry.describe("teen")
    assert found.summary == "Pull new prototypes towards the base prototypes they resemble."
    assert "NeurIPS 2023" in found.facts["paper"]
    assert found.package == "fscil-bench"


@pytest.mark.parametrize("name", registry.method_names())
def test_what_the_source_says_is_what_the_class_has(name):
    """Inherited facts too, so that `ls methods` hides no privilege."""
    found, kind = registry.describe(name).facts, registry.load_method(name)
    for fact in ("privileges", "exemplars", "paper", "costly", "sampled", "baseline"):
        assert found.get(fact, getattr(Method, fact)) == getattr(kind, fact)


@pytest.mark.parametrize("name", registry.method_names())
def test_every_method_says_what_it_is(name):
    found = registry.describe(name)
    assert found.summary.endswith(".")
    for fact in ("paper", "equations"):
        assert found.facts[fact]
        assert not found.facts[fact].endswith(".")  # the page of methods ends the sentence


def test_the_checksum_of_a_methods_code_follows_its_imports(tmp_path, monkeypatch):
    """A helper of the method's own package, or of ours, is code behind its numbers; other libraries are not."""
    from fscil_bench.code import code_sha256

    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("def half(x):\n    return x / 2\n")
    (package / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom fscil_bench.method import PrototypeMethod, setting\n"
        "from .helper import half\n"
        "@dataclass(kw_only=True)\nclass Mine(PrototypeMethod):\n    x: float = setting(2, 'how much', origin='own')\n"
        "    def calibrate(self, new, base):\n        return half(new)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from theirs.mine import Mine

    before = code_sha256(Mine())
    (package / "helper.py").write_text("def half(x):\n    # in words\n    return x / 2\n")
    linecache.clearcache()
    assert code_sha256(Mine()) == before
    mine = package / "mine.py"
    mine.write_text(mine.read_text() + "    paper = 'A and B, C, 2026'\n    deviations = ('in words',)\n")
    linecache.clearcache()
    assert code_sha256(Mine()) == before
    mine.write_text(mine.read_text().replace("'how much', origin='own'", "'how far', origin='paper'"))
    linecache.clearcache()
    assert code_sha256(Mine()) == before
    said = mine.read_text()
    mine.write_text(said.replace("setting(2", "setting(3"))
    linecache.clearcache()
    assert code_sha256(Mine()) != before
    mine.write_text(said)
    (package / "helper.py").write_text("def half(x):\n    return x / 3\n")
    linecache.clearcache()
    assert code_sha256(Mine()) != before


def test_nothing_in_runner_metrics_or_the_command_line_names_a_method():
    """Examples in help texts aside."""
    root = Path(registry.__file__).parent
    for path in (root / "runner.py", root / "metrics.py", *(root / "cli").glob("*.py")):
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not texts & set(registry.method_names()), path


def test_no_method_file_is_long():
    for name in registry.method_names():
        source = inspect.getsource(sys.modules[registry.load_method(name).__module__])
        assert len(source.splitlines()) <= 150, name


@pytest.mark.parametrize("name", ["teen", "dc-lr"])
def test_one_method_is_listed_with_all_it_declares(cli, name):
    page, data = cli("ls", "methods", name), json.loads(cli("ls", "methods", name, "--json").out)
    assert page.out in cli("ls", "methods", "--markdown").out
    ((found,),) = [data]
    kind = registry.load_method(name)
    assert (found["name"], found["exemplars"]) == (name, kind.exemplars)
    assert found["deviations"] == list(kind.deviations)
    assert found["closed_form"] == (name == "teen")
    for setting in found["settings"]:
        assert f"| `{setting['name']}` | {as_text(setting['default'])} | {setting['origin']} |" in page.out
    if name == "teen":
        weight = next(s for s in found["settings"] if s["name"] == "shift_weight")
        assert weight["elsewhere"][0] == {"when": {"dataset": "cifar100"}, "default": 0.1, "origin": "code"}


def test_a_listing_of_an_unknown_method_is_a_wrong_call(cli):
    assert cli("ls", "methods", "tean").code == 2
    assert cli("ls", "methods", "--json", "--markdown").code == 2
