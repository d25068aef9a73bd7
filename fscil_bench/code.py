"""A checksum of the code behind a number: it changes with what the code does, not with comments or layout."""

import ast
import inspect
import sys
from types import ModuleType

from fscil_bench import banks, episodes, method, metrics, runner
from fscil_bench.files import sha256_json
from fscil_bench.protocols import draws
from fscil_bench.protocols import episodes as sampling
from fscil_bench.records import Kind

SAID = {"paper", "equations", "deviations"}  # of a method, in words: they decide no number
HARNESS: dict[Kind, tuple[ModuleType, ...]] = {  # what numbers of each kind pass through
    "fscil": (banks, draws, method, metrics, runner),
    "fsl": (banks, draws, sampling, method, metrics, episodes),
}


def code_sha256(of: "method.Method", kind: Kind = "fscil") -> str:
    """Of the modules of the method's class and its bases, of what they import from their own package or this one, and
    of the part of the harness that numbers pass through."""
    classes = [cls for part in (of, *getattr(of, "further", ())) for cls in type(part).__mro__]
    modules = {module.__name__: module for module in HARNESS[kind]}
    for cls in classes:
        if cls.__module__ not in ("builtins", "abc"):
            _collect(sys.modules[cls.__module__], modules)
    return sha256_json({name: _essence(inspect.getsource(module)) for name, module in sorted(modules.items())})


def _collect(module: ModuleType, modules: dict[str, ModuleType]) -> None:
    """Add a module, and those its names come from, but for other people's libraries."""
    if module.__name__ in modules:
        return
    modules[module.__name__] = module
    packages = {module.__name__.partition(".")[0], "fscil_bench"}
    for value in list(vars(module).values()):
        source = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(source, str) and source.partition(".")[0] in packages and source in sys.modules:
            _collect(sys.modules[source], modules)


def _essence(source: str) -> str:
    """The syntax tree without docstrings and what a method says of itself; comments and layout are not in it anyway."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.ClassDef):
            node.body = [statement for statement in node.body if not _only_says(statement)] or [ast.Pass()]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setting":
            node.args = node.args[:1]  # not what it means
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in ("meaning", "origin")]
    return ast.unparse(tree)


def _only_says(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return all(isinstance(target, ast.Name) and target.id in SAID for target in targets)


def modules_sha256(*modules: ModuleType) -> str:
    """Of other modules that numbers pass through."""
    return sha256_json({module.__name__: _essence(inspect.getsource(module)) for module in modules})
