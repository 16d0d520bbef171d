"""Check whether a function uses its state, by reading the source without running it.

Design: it is better to reject a function on creation than to let all its messages fail without a state store. Many
classes have a method such as `get_state`, so a call counts only if it is made on the context passed to the function, or
on an attribute of `self` that holds the context. The context is followed into functions of the same module and methods
of the same class, by their plain names. Calls inside a `try` that handles StateUnavailable do not count. A use that is
not found here stops the instance at its first call. Sources are untrusted: the search does not recurse, and its work is
limited.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .source_check import Modules, last_name, top_level

STATE_METHODS = frozenset(("incr_counter", "get_counter", "del_counter", "put_state", "get_state", "delete_state"))
NODES_MAX = 200_000
"""Maximum syntax tree nodes visited by a search; the rest of a larger module is ignored."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Place: TypeAlias = tuple[_Function, str, ast.ClassDef | None]
"""A function, its parameter that holds the context (empty for none), and its class if it is a method."""


def find_state_call(modules: Modules, class_name: str) -> str:
    """Return where a function first uses its state, such as ``incr_counter on line 8 of counter.py``, or "".

    Args:
        modules: modules of the package.
        class_name: ``module.Class``, ``module.function``, or a module with a function `process`.

    Raises:
        PackageError: a module cannot be parsed.
    """
    module, _, attribute = class_name.rpartition(".")
    for name, wanted in ((module, attribute), (class_name, "process")):
        file = modules.find(name) if name else None
        if file is None:
            continue
        tree = modules.tree(file)
        found = next((node for node in top_level(tree) if getattr(node, "name", "") == wanted), None)
        if isinstance(found, _Function | ast.ClassDef):
            call = _Search(tree).first_call(found)
            return "" if call is None else f"{call[1]} on line {call[0]} of {file.name}"
    return ""


class _Search:
    """A search in one module.

    Attributes:
        calls: line and method of each call found.
        kept: names of attributes of `self` that hold the context.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.calls: list[tuple[int, str]] = []
        self.kept: set[str] = set()
        self._by_name: dict[ast.ClassDef | None, dict[str, list[_Function]]] = {None: _by_name(tree)}
        self._nodes_left = NODES_MAX

    def first_call(self, target: _Function | ast.ClassDef) -> tuple[int, str] | None:
        """Return line and method of the first call on the context passed to a function or class, or None."""
        starts: list[_Place] = [(target, _parameter(target, 1), None)] if isinstance(target, _Function) else []
        if isinstance(target, ast.ClassDef):
            self._by_name[target] = _by_name(target)
            methods = [method for named in self._by_name[target].values() for method in named]
            given = [
                one for one in methods if one.name in ("process", "open")
            ]  # methods of functions and connectors that receive a context
            starts += [(one, _parameter(one, 1 + (not _is_static(one))), target) for one in given]
            starts += [(one, "", target) for one in methods]
        self._search(starts)
        if self.kept:
            self._search(starts)  # again, now that all attributes with the context are known
        return min(self.calls, default=None)

    def _search(self, starts: Sequence[_Place]) -> None:
        """Search functions, and all functions that they pass the context to."""
        waiting = deque(starts)
        seen: set[tuple[_Function, str]] = set()
        while waiting:
            function, context, owner = waiting.popleft()
            if (function, context) in seen:
                continue
            seen.add((function, context))
            for node in _unguarded(function):
                self._nodes_left -= 1
                if self._nodes_left < 0:
                    return
                if isinstance(node, ast.Assign) and self._is_context(node.value, context):
                    targets = (one for one in node.targets if isinstance(one, ast.Attribute) and _is_of_self(one))
                    self.kept |= {one.attr for one in targets}
                elif isinstance(node, ast.Call):
                    waiting += self._look_at(node, context, owner)

    def _look_at(self, call: ast.Call, context: str, owner: ast.ClassDef | None) -> Iterator[_Place]:
        """Record a call that uses the state, and yield functions that receive the context from it."""
        called = call.func
        if isinstance(called, ast.Attribute) and called.attr in STATE_METHODS:
            if self._is_context(called.value, context):
                self.calls.append((call.lineno, called.attr))
            return
        method_of = owner if _is_of_self(called) else None
        if not isinstance(called, ast.Name) and method_of is None:
            return
        given = [place for place, argument in enumerate(call.args) if self._is_context(argument, context)]
        named = [one.arg for one in call.keywords if one.arg and self._is_context(one.value, context)]
        if not given and not named:
            return
        for function in self._by_name[method_of].get(last_name(called), ()):
            first = int(method_of is not None and not _is_static(function))
            for name in (*(_parameter(function, first + place) for place in given), *named):
                self._nodes_left -= 1
                if self._nodes_left < 0:
                    return
                yield function, name, method_of

    def _is_context(self, node: ast.expr, context: str) -> bool:
        if isinstance(node, ast.Name):
            return bool(context) and node.id == context
        return isinstance(node, ast.Attribute) and _is_of_self(node) and node.attr in self.kept


def _unguarded(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function in order, without the body of a `try` that handles StateUnavailable."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.Try) and any(map(_handles_missing_state, node.handlers)):
            children: list[ast.AST] = [*node.handlers, *node.orelse, *node.finalbody]
        else:
            children = list(ast.iter_child_nodes(node))
        waiting += reversed(children)


def _handles_missing_state(handler: ast.ExceptHandler) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is not None and last_name(one) in ("StateUnavailable", "MagnetarError") for one in types)


def _by_name(scope: ast.Module | ast.ClassDef) -> dict[str, list[_Function]]:
    """Return the functions of a module, or the methods of a class, in order."""
    found: dict[str, list[_Function]] = {}
    for node in top_level(scope):
        if isinstance(node, _Function):
            found.setdefault(node.name, []).append(node)
    return found


def _is_static(method: _Function) -> bool:
    return any(last_name(one) == "staticmethod" for one in method.decorator_list)


def _is_of_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _parameter(function: _Function, place: int) -> str:
    parameters = [*function.args.posonlyargs, *function.args.args]
    return parameters[place].arg if place < len(parameters) else ""
