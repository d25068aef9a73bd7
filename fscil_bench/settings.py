"""Typed settings given as text: `--set name=value` against the fields of a dataclass."""

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, Literal

from fscil_bench.errors import UsageError, unknown_name


def split_assignments(pairs: Collection[str], option: str = "--set", expected: str = "name=value") -> dict[str, str]:
    """`name=value` texts as a mapping; errors name the `option` and what it expects."""
    result: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair}: expected {expected}")
        if name.strip() in result:
            raise UsageError(f"{option} names {name.strip()} twice: give it one value")
        result[name.strip()] = value.strip()
    return result


def parse_settings(owner: type, given: Mapping[str, str], where: str, fixed: Collection[str] = ()) -> dict[str, Any]:
    """The given texts as values of the fields of the dataclass `owner`; `where` names it in errors."""
    hints = typing.get_type_hints(owner)
    fields = {f.name: f for f in dataclasses.fields(owner) if f.init and f.name not in fixed}
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in fields:
            raise unknown_name(f"setting of {where}", name, fields)
        try:
            values[name] = _parse(text, hints[name])
        except ValueError as error:
            raise UsageError(f"{where}: {name}={text} is not {error}") from None
    return values


def as_text(value: Any) -> str:
    """A setting's value as `--set` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(as_text, value))
    return str(value)


def assignments(settings: Mapping[str, Any]) -> str:
    """`name=value name=value`, as after `--set`."""
    return " ".join(f"{name}={as_text(value)}" for name, value in settings.items())


def labelled(method: str, settings: Mapping[str, Any]) -> str:
    """A method's name, with the settings that tell it apart."""
    return f"{method} {assignments(settings)}".rstrip()


def _parse(text: str, kind: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if text not in args:
            raise ValueError("one of " + ", ".join(map(str, args)))
        return text
    if origin in (typing.Union, types.UnionType):
        return None if text.lower() == "none" else _parse(text, next(a for a in args if a is not type(None)))
    if origin is tuple:
        return tuple(_parse(part, args[0]) for part in text.split(",") if part)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("true or false")
        return text.lower() == "true"
    try:
        value = kind(text)
    except ValueError:
        raise ValueError({int: "a whole number", float: "a number"}.get(kind, f"a {kind.__name__}")) from None
    if kind is float and not math.isfinite(value):
        raise ValueError("a finite number")
    return value
