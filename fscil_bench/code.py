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

HARNESS: dict[Kind, tuple[ModuleType, ...]] = {  # what numbers of each kind pass through
    "fscil": (banks, draws, method, metrics, runner),
    "fsl": (banks, draws, sampling, method, metrics, episodes),
}


def code_sha256(of: "method.Method", kind: Kind = "fscil") -> str:
    """Of the modules of the method's class and its bases, and of the part of the harness that numbers pass through."""
    kinds = [kind for part in (of, *getattr(of, "further", ())) for kind in type(part).__mro__]
    own = {sys.modules[kind.__module__] for kind in kinds if kind.__module__ != "builtins"}
    modules = {module.__name__: module for module in (*HARNESS[kind], *own)}
    return sha256_json({name: _essence(inspect.getsource(module)) for name, module in sorted(modules.items())})


def _essence(source: str) -> str:
    """The syntax tree without docstrings; comments and layout are not in it to begin with."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
