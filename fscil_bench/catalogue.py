"""The page of all methods, made from what their classes declare."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from fscil_bench.files import plain
from fscil_bench.markdown import table
from fscil_bench.method import Default, Method, PrototypeMethod
from fscil_bench.registry import describe, load_method
from fscil_bench.settings import as_text, assignments
from fscil_bench.words import MEMORY, memory_and_privileges

HEAD = """# Methods

Made by `fscil-bench ls methods --markdown` from what the methods declare; do not edit.

`X+Y` is the prototype method X whose new prototypes are calibrated, or its scores adjusted, once more by Y:
`fecam+teen`, `protonet+bias`. Settings of Y are then called `Y.name`. The origin of a default is the paper, its code,
`val` (chosen on base classes alone), or `own`: set here, for want of a published value.
"""


def methods_page(names: Iterable[str]) -> str:
    """Markdown: a table of the methods, and a section for each."""
    kinds = {name: load_method(name) for name in names}
    rows = [
        [
            f"[{name}](#{name})",
            describe(name).summary,
            memory_and_privileges(kind.privileges, kind.exemplars),
            _cost(kind),
        ]
        for name, kind in kinds.items()
    ]
    overview = table(["method", "what it does", MEMORY, "cost"], rows, left=4)
    return "\n".join([HEAD, overview, method_sections(kinds)])


def method_sections(names: Iterable[str]) -> str:
    """Markdown: all that each of some methods declares."""
    return "\n".join(_section(name, load_method(name)) for name in names)


def method_data(name: str) -> dict[str, Any]:
    """The same as JSON data."""
    kind, about = load_method(name), describe(name)
    said = ("paper", "equations", "privileges", "exemplars", "baseline", "objective", "deviations", "variants")
    done = ("batched", "sampled", "costly", "episodes")
    data: dict[str, Any] = plain(
        {
            "name": name,
            "summary": about.summary,
            "package": about.package,
            **{key: getattr(kind, key) for key in (*said, *done)},
            "closed_form": is_closed_form(kind),
            "settings": [_setting(kind, field) for field in dataclasses.fields(kind) if field.init],
        }
    )
    return data


def _setting(kind: type[Method], field: "dataclasses.Field[Any]") -> dict[str, Any]:
    keys = ("meaning", "origin", "low", "high")
    rules = [
        {"when": rule.when, "default": rule.values[field.name], "origin": rule.origin}
        for rule in kind.defaults
        if field.name in rule.values
    ]
    facts = {"origin": "own", **{key: field.metadata.get(key) for key in keys if key in field.metadata}}
    return {"name": field.name, "default": field.default, **facts, "elsewhere": rules}


def _section(name: str, kind: type[Method]) -> str:
    facts = [
        f"- Paper: {kind.paper}.",
        f"- Equations: {kind.equations or 'not said'}.",
        f"- Memory and privileges: {memory_and_privileges(kind.privileges, kind.exemplars)}.",
        f"- Cost: {_cost(kind)}.",
        f"- Composition: {_composition(kind)}.",
    ]
    if kind.objective:
        facts.append(f"- Needs a backbone trained for the objective `{kind.objective}`.")
    if kind.baseline:
        facts.append(f"- Compared with `{kind.baseline}`.")
    if not kind.episodes:
        facts.append("- In sessions only: few-shot episodes have nothing for it.")
    if kind.variants:
        facts.append(f"- Rows of its own on the leaderboard: {', '.join(map(_assignments, kind.variants))}.")
    facts += [f"- Deviation: {text}." for text in kind.deviations]
    parts = [f"## {name}", "", describe(name).summary, "", *facts, ""]
    settings = [field for field in dataclasses.fields(kind) if field.init]
    if settings:
        columns = ["setting", "default", "origin", "range", "meaning"]
        parts.append(table(columns, [line for field in settings for line in _lines(kind, field)], left=5))
    return "\n".join(parts)


def _lines(kind: type[Method], field: "dataclasses.Field[Any]") -> list[list[str]]:
    """A setting's default, and below it the defaults that hold elsewhere."""
    low, high = field.metadata.get("low"), field.metadata.get("high")
    between = f"{low} to {high}" if high is not None else f"from {low}" if low is not None else ""
    first = [f"`{field.name}`", as_text(field.default), field.metadata.get("origin", "own"), between]
    elsewhere = [rule for rule in kind.defaults if field.name in rule.values]
    return [
        [*first, field.metadata.get("meaning", "")],
        *(
            [f"`{field.name}`, {_condition(rule)}", as_text(rule.values[field.name]), rule.origin, "", ""]
            for rule in elsewhere
        ),
    ]


def _condition(rule: Default) -> str:
    return " and ".join(
        as_text(value) if key == "dataset" else f"{key}={as_text(value)}" for key, value in rule.when.items()
    )


def _assignments(settings: Any) -> str:
    return f"`{assignments(settings)}`"


def is_closed_form(kind: type[Method]) -> bool:
    """Whether it fits nothing by gradient descent in the sessions."""
    return kind.trained_parameters is Method.trained_parameters


def _cost(kind: type[Method]) -> str:
    form = "closed form" if is_closed_form(kind) else "fitted by gradient descent"
    form += ", draws random numbers" if kind.sampled else ""
    draws = "10 random draws, because it is slow" if "fscil" in kind.costly else "100 random draws"
    episodes = ", 2,000 episodes" if "fsl" in kind.costly else ""
    return f"{form}; {draws}{episodes}"


def _composition(kind: type[Method]) -> str:
    host = issubclass(kind, PrototypeMethod) and kind.add_session is PrototypeMethod.add_session
    added = kind.can_be_added()
    return {
        (True, True): "others can be added to it, and it to others",
        (True, False): "others can be added to it",
        (False, True): "it can be added to others",
        (False, False): "stands alone",
    }[host, added]
