"""Methods by name, found through the entry-point group `fscil_bench.methods`: built-ins and outsiders alike.

`X+Y` is the prototype method X whose new prototypes are calibrated once more, and its scores adjusted once more, by the
prototype method Y; settings of Y are called `Y.name`.
"""

import ast
import dataclasses
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fscil_bench.errors import FscilError, UsageError, unknown_name
from fscil_bench.progress import note
from fscil_bench.protocols import load_protocol
from fscil_bench.settings import labelled, parse_settings

if TYPE_CHECKING:
    from fscil_bench.method import Method, PrototypeMethod

GROUP = "fscil_bench.methods"


@dataclass(frozen=True)
class Configured:
    """A method with all its settings decided."""

    name: str
    method: "Method"
    settings: dict[str, Any]
    origins: dict[str, str]  # of each setting: paper | code | val | own | user
    version: str = "?"  # of the package that provides the method
    baseline: str | None = None  # the method it builds on
    deviations: tuple[str, ...] = ()  # from the paper or its code

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that the user moved away from their defaults."""
        return {key: value for key, value in self.settings.items() if self.origins[key] == "user"}

    @property
    def label(self) -> str:
        """Its name, with what the user changed."""
        return labelled(self.name, self.changed)

    @property
    def explained(self) -> str:
        """All settings with their origins, for people."""
        return ", ".join(f"{key}={value} ({self.origins[key]})" for key, value in self.settings.items()) or "none"


@dataclass(frozen=True)
class Description:
    """What the source of a method says of it; read without running it."""

    name: str
    summary: str
    facts: dict[str, Any]  # the literal class attributes, inherited ones too: paper, privileges, ...
    package: str  # who provides it


def method_names() -> list[str]:
    return sorted(_found())


def loadable() -> list[str]:
    """The methods that load; one that does not is named on stderr and left out."""
    names = []
    for name in method_names():
        try:
            load_method(name)
            names.append(name)
        except FscilError as error:
            note(f"Left out: {error}")
    return names


def require_method(name: str) -> None:
    """Fail if there is no method called `name`; imports nothing."""
    for part in name.split("+"):
        if not part.strip():
            raise UsageError(f"method '{name}': a name is missing beside '+'")
        _entry(part)


def load_method(name: str) -> "type[Method]":
    """The class of the method called `name`; of `X+Y` that of X."""
    from fscil_bench.method import Method, PrototypeMethod

    first, *others = name.split("+")
    if others:
        host = load_method(first)
        if not issubclass(host, PrototypeMethod) or host.add_session is not PrototypeMethod.add_session:
            raise UsageError(f"method {name}: {first} is not made of prototypes alone, so nothing can be added to it")
        for place, part in enumerate(others, 1):
            if part in name.split("+")[:place]:
                raise UsageError(f"method {name}: {part} comes twice: name it once")
            if not load_method(part).can_be_added():
                raise UsageError(
                    f"method {name}: {part} cannot be added: it must calibrate prototypes or adjust scores, and do no "
                    "more (`fscil-bench ls methods --markdown` says which do)"
                )
        return host
    entry = _entry(name)
    try:
        loaded = entry.load()
    except Exception as error:
        raise FscilError(f"method '{name}' ({entry.value}) does not load: {type(error).__name__}: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Method)):
        raise FscilError(f"method '{name}' ({entry.value}) is not a subclass of fscil_bench.method.Method")
    if any(isinstance(value, dataclasses.Field) for value in vars(loaded).values()):
        raise FscilError(f"method '{name}' ({entry.value}) has settings but lacks @dataclass(kw_only=True)")
    if ("exemplars" in loaded.privileges) != (loaded.exemplars > 0):
        raise FscilError(
            f"method '{name}' ({entry.value}) declares exemplars = {loaded.exemplars} and privileges = "
            f"{loaded.privileges}: what keeps exemplars names that privilege and their number, both or neither"
        )
    return loaded


def configure(name: str, dataset: str, given: Mapping[str, str] | None = None) -> Configured:
    """The method `name` for `dataset`: its defaults there, then what the user gave."""
    if "+" in name:
        return _compose(name, dataset, given or {})
    kind = load_method(name)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    user = parse_settings(kind, given or {}, f"method {name}")
    values, origins = _defaults(kind, dataset, user)
    origins |= {key: "user" for key, value in user.items() if value != values[key]}
    values |= user
    for key, value in values.items():
        low, high = fields[key].metadata.get("low"), fields[key].metadata.get("high")
        if value is None:
            continue
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            between = f"at least {low}" if high is None else f"between {low} and {high}"
            raise UsageError(f"method {name}: {key}={value} must be {between}")
    dist = _entry(name).dist
    version = dist.version if dist else "?"
    return Configured(name, kind(**values), values, origins, version, kind.baseline, kind.deviations)


def _compose(name: str, dataset: str, given: Mapping[str, str]) -> Configured:
    load_method(name)
    for key in given:
        if key not in (known := _setting_names(name)):
            raise unknown_name(f"setting of method {name}", key, known)
    before, _, last = name.rpartition("+")
    prefix = f"{last}."
    own = {key: value for key, value in given.items() if not key.startswith(prefix)}
    theirs = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
    first, second = configure(before, dataset, own), configure(last, dataset, theirs)
    settings = {**first.settings, **{prefix + key: value for key, value in second.settings.items()}}
    origins = {**first.origins, **{prefix + key: value for key, value in second.origins.items()}}
    host = cast("PrototypeMethod", first.method)
    host.further = (*host.further, cast("PrototypeMethod", second.method))
    deviations = (*first.deviations, *second.deviations)
    return Configured(name, host, settings, origins, first.version, before, deviations)


def _setting_names(name: str) -> list[str]:
    """Of X its own, of Y in `X+Y` those that start with `Y.`."""
    first, *others = name.split("+")
    return [
        prefix + field.name
        for part, prefix in ((first, ""), *((other, f"{other}.") for other in others))
        for field in dataclasses.fields(load_method(part))
        if field.init
    ]


def describe(name: str) -> Description:
    """A method's first line and declared facts, from its source: listing methods does not run their modules."""
    entry = _entry(name)
    package = entry.dist.name if entry.dist else "?"
    try:
        summary, facts = _written(entry.module, entry.attr)
    except Exception as error:
        return Description(name, f"does not load: {type(error).__name__}: {error}", {}, package)
    return Description(name, summary, facts, package)


def _written(module: str, name: str) -> tuple[str, dict[str, Any]]:
    """The first line of a class's docstring, and the literal attributes of it and its bases, from their sources."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {module!r}")
    if not spec.has_location:  # frozen or built in, as abc.ABC
        return "", {}
    tree = ast.parse(Path(spec.origin).read_text())
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return "", {}
    homes = {
        alias.asname or alias.name: (node, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    facts: dict[str, Any] = {}
    for base in reversed([base.id for base in classes[name].bases if isinstance(base, ast.Name)]):
        if base in classes:
            facts |= _written(module, base)[1]
        elif base in homes:
            node, original = homes[base]
            home = importlib.util.resolve_name("." * node.level + (node.module or ""), spec.parent)
            facts |= _written(home, original)[1]
    return (ast.get_docstring(classes[name]) or "").partition("\n")[0], facts | _literals(classes[name])


def _defaults(kind: "type[Method]", dataset: str, user: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values and origins of all settings before the user's own, which may decide which defaults hold."""
    fields = [f for f in dataclasses.fields(kind) if f.init]
    values = {f.name: _plain_default(kind, f) for f in fields}
    origins = {f.name: f.metadata.get("origin", "own") for f in fields}
    images = load_protocol(dataset).dataset  # a validation protocol has the defaults of its dataset
    for rule in kind.defaults:
        facts = {"dataset": images, **values, **user}
        if all(facts[key] == wanted for key, wanted in rule.when.items()):
            values |= rule.values
            origins |= dict.fromkeys(rule.values, rule.origin)
    return values, origins


def _plain_default(kind: type, field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise FscilError(f"method {kind.__name__}: its setting {field.name} has no default")
    return field.default


def _literals(node: ast.ClassDef) -> dict[str, Any]:
    facts = {}
    for statement in node.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and value is not None:
            try:
                facts[target.id] = ast.literal_eval(value)
            except ValueError:
                continue  # not a literal: only running the module would tell
    return facts


def _entry(name: str) -> EntryPoint:
    found = _found()
    if name not in found:
        raise unknown_name("method", name, found)
    return found[name]


@cache
def _found() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in cast("list[EntryPoint]", entry_points(group=GROUP)):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise FscilError(f"two methods are called '{entry.name}': {other.value} and {entry.value}; uninstall one")
    return found
