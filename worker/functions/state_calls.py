"""Whether a function uses its state: read from the source, without running any of it.

Design: a function whose messages all fail for want of a state store is better refused when it is created. Many classes
have a method such as `get_state`, so a call counts only if it is made on the context that the function is given, or on
an attribute of `self` that holds it. The context is followed into functions of the same module and methods of the same
class, by their plain names. Calls inside a `try` that handles StateUnavailable do not count. What is not found here
stops the instance at its first call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...api.context import NO_STATE_STORE
from ...errors import PackageError
from .package_check import find_module, last_name, parse, top_level

STATE_METHODS = frozenset(("incr_counter", "get_counter", "del_counter", "put_state", "get_state", "delete_state"))
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def refuse_state_calls(package: Path, class_name: str) -> None:
    """Refuse a function that uses its state, where there is no state store. Blocking.

    Raises:
        PackageError: it does, or a module of it cannot be parsed.
    """
    if call := find_state_call(package, class_name):
        raise PackageError(f"className {class_name} calls {call}, and {NO_STATE_STORE}")


def find_state_call(package: Path, class_name: str) -> str:
    """Return where a function first uses its state, as ``incr_counter in line 8 of counter.py``; empty if not found.

    Args:
        package: a .py file or the directory of an extracted archive.
        class_name: ``module.Class``, ``module.function``, or a module with a function `process`.

    Raises:
        PackageError: a module cannot be parsed.
    """
    module, _, attribute = class_name.rpartition(".")
    for name, wanted in ((module, attribute), (class_name, "process")):
        file = find_module(package, name) if name else None
        if file is None:
            continue
        tree = parse(file, package)
        found = next((node for node in top_level(tree) if getattr(node, "name", "") == wanted), None)
        if isinstance(found, _Function | ast.ClassDef):
            call = _Search(tree).first_call(found)
            return "" if call is None else f"{call[1]} in line {call[0]} of {file.name}"
    return ""


@dataclass(slots=True)
class _Search:
    """The search in one module.

    Attributes:
        tree: the module.
        seen: functions that were searched, with the parameter that holds the context.
        calls: line and method of each call that was found.
        kept: attributes of `self` that hold the context.
    """

    tree: ast.Module
    seen: set[tuple[int, str]] = field(default_factory=set)
    calls: list[tuple[int, str]] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)

    def first_call(self, target: _Function | ast.ClassDef) -> tuple[int, str] | None:
        if isinstance(target, ast.ClassDef):
            for method in _methods(target):
                if method.name in ("process", "open"):  # of functions, and of sources and sinks
                    self._search(method, _parameter(method, 1 + (not _is_static(method))), target)
            for method in _methods(target):
                self._search(method, "", target)
        else:
            self._search(target, _parameter(target, 1), None)
        return min(self.calls, default=None)

    def _search(self, function: _Function, context: str, owner: ast.ClassDef | None) -> None:
        """Search a function in which the parameter ``context`` is the context; empty if none of them is."""
        if (function.lineno, context) in self.seen:
            return
        self.seen.add((function.lineno, context))
        for node in _unguarded(function):
            if isinstance(node, ast.Assign) and self._is_context(node.value, context):
                self.kept |= {one.attr for one in node.targets if isinstance(one, ast.Attribute) and _is_of_self(one)}
            elif isinstance(node, ast.Call):
                self._look_at(node, context, owner)

    def _look_at(self, call: ast.Call, context: str, owner: ast.ClassDef | None) -> None:
        called = call.func
        if isinstance(called, ast.Attribute) and called.attr in STATE_METHODS:
            if self._is_context(called.value, context):
                self.calls.append((call.lineno, called.attr))
            return
        method_of = owner if _is_of_self(called) else None
        names = _methods(method_of) if method_of is not None else top_level(self.tree)
        is_plain = isinstance(called, ast.Name) or method_of is not None
        functions = [node for node in names if isinstance(node, _Function) and node.name == last_name(called)]
        for function in functions if is_plain else ():
            is_bound = method_of is not None and not _is_static(function)
            for place, argument in enumerate(call.args, int(is_bound)):
                if self._is_context(argument, context):
                    self._search(function, _parameter(function, place), method_of)
            for keyword in call.keywords:
                if keyword.arg and self._is_context(keyword.value, context):
                    self._search(function, keyword.arg, method_of)

    def _is_context(self, node: ast.expr, context: str) -> bool:
        if isinstance(node, ast.Name):
            return bool(context) and node.id == context
        return isinstance(node, ast.Attribute) and _is_of_self(node) and node.attr in self.kept


def _unguarded(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function in their order, but for the body of a `try` that handles StateUnavailable."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Try) and any(map(_handles_missing_state, node.handlers)):
            children = [child for child in children if child not in node.body]
        waiting += reversed(children)


def _handles_missing_state(handler: ast.ExceptHandler) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is not None and last_name(one) in ("StateUnavailable", "MagnetarError") for one in types)


def _methods(owner: ast.ClassDef) -> list[_Function]:
    return [node for node in top_level(owner) if isinstance(node, _Function)]


def _is_static(method: _Function) -> bool:
    return any(last_name(one) == "staticmethod" for one in method.decorator_list)


def _is_of_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _parameter(function: _Function, place: int) -> str:
    parameters = [*function.args.posonlyargs, *function.args.args]
    return parameters[place].arg if place < len(parameters) else ""
