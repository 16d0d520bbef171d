"""Check that a package contains its connector's class, by reading the source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...errors import PackageError
from .source_check import Modules, check_archive, defines, last_name, listed, public_names, top_level

_BASES = {"source": ("Source", "BatchSource"), "sink": ("Sink",)}
_OTHERS = {"object", "Function", "Connector", "Source", "BatchSource", "Sink"}
"""Bases that do not make a class a connector of a kind, except those in `_BASES`."""


def connector_class(modules: Modules, class_name: str, kind: str) -> str:
    """Return the class name of a package's connector; blocking.

    Args:
        modules: modules of the package.
        class_name: ``module.Class``, or in a .py file also ``Class``; empty for the only connector class.
        kind: ``source`` or ``sink``.

    Raises:
        PackageError: one line about the problem, in Pulsar's words where it has any.
    """
    package = modules.package
    if package.is_dir():
        check_archive(package)
    if not class_name:
        return _only_class(modules, kind)
    if "." not in class_name and package.is_file():
        class_name = f"{package.stem}.{class_name}"
    title = kind.capitalize()
    not_found = f"{title} class {class_name} not found{' in class loader' if kind == 'source' else ''}"
    module, _, name = class_name.rpartition(".")
    if not all(part.isidentifier() for part in class_name.split(".")) or not module:
        raise PackageError(f"{not_found}: the name is not of the form module.Class")
    file = modules.find(module)
    if file is None:
        raise PackageError(f"{not_found}: the package has no module {module}; it has {modules.names()}")
    tree = modules.tree(file)
    if not defines(tree, name):
        defined = listed(public_names(tree))
        raise PackageError(f"{not_found}: module {module} has no {name}; it defines {defined}")
    if not _may_be(tree, name, kind):
        wanted = " or ".join(_BASES[kind])
        raise PackageError(f"{title} class {class_name} does not implement the correct interface: make it a {wanted}")
    return class_name


def _only_class(modules: Modules, kind: str) -> str:
    """Return the only connector class of a package."""
    found = _classes_of(modules, kind)
    if len(found) == 1:
        return found[0]
    title, wanted = kind.capitalize(), " or ".join(_BASES[kind])
    there = f"the package has {listed(found)}" if found else f"the package has no subclass of {wanted}"
    other = "sink" if kind == "source" else "source"
    if not found and (others := _classes_of(modules, other)):
        there += f", but the {other} {listed(others)} (`magnetar {other}s create`)"
    raise PackageError(f"{title} class is not provided: set className to module.Class; {there}")


def _classes_of(modules: Modules, kind: str) -> list[str]:
    """Return a package's connector classes of a kind, without base classes of others."""
    found: list[str] = []
    for module, file in modules.files().items():
        classes = _classes(modules.tree(file))
        own = [name for name in classes if not name.startswith("_") and _is_one(classes, name, kind)]
        inherited = {base for name in own for base in _bases(classes[name])}
        found += [f"{module}.{name}" for name in own if name not in inherited]
    return found


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in top_level(tree) if isinstance(node, ast.ClassDef)}


def _bases(node: ast.ClassDef) -> list[str]:
    return [last_name(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]


def _ancestors(classes: dict[str, ast.ClassDef], name: str) -> Iterator[str]:
    """Yield the names of all bases of a class outside its own module."""
    seen, to_see = {name}, _bases(classes[name])
    while to_see:
        base = to_see.pop()
        if base not in classes:
            yield base
        elif base not in seen:
            seen.add(base)
            to_see += _bases(classes[base])


def _is_one(classes: dict[str, ast.ClassDef], name: str, kind: str) -> bool:
    return any(base in _BASES[kind] for base in _ancestors(classes, name))


def _may_be(tree: ast.Module, name: str, kind: str) -> bool:
    """Return whether a name may be a connector class, judging by the source; imported names may be."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if any(isinstance(node, functions) and node.name == name for node in top_level(tree)):
        return False
    classes = _classes(tree)
    if name not in classes or classes[name].decorator_list or classes[name].keywords:
        return True
    bases = set(_ancestors(classes, name))
    return bool(bases - _OTHERS) or not bases.isdisjoint(_BASES[kind])


def check_batching(modules: Modules, class_name: str, *, is_batch: bool) -> None:
    """Reject a BatchSource without `batchSourceConfig`, and a Source with it, judging by the source; blocking.

    Args:
        modules: modules of the package.
        class_name: result of `connector_class`.
        is_batch: whether `batchSourceConfig` is set.

    Raises:
        PackageError: the class and the setting do not match.
    """
    module, _, name = class_name.rpartition(".")
    file = modules.find(module)
    classes = _classes(modules.tree(file)) if file is not None else {}
    bases = set(_ancestors(classes, name)) if name in classes else set()
    if "BatchSource" in bases and not is_batch:
        raise PackageError(
            f"Source class {class_name} is a BatchSource: set batchSourceConfig, for example"
            ' {"discoveryTriggererClassName": "immediate"}'
        )
    if "Source" in bases and is_batch:
        raise PackageError(f"Source class {class_name} is not a BatchSource: omit batchSourceConfig")
