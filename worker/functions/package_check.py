"""Check that a package holds the class of its function, from the source, without running any of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ...api.pickled_function import PICKLE_FILE, VERSION_FILE, version_refusal
from ...errors import PackageError
from ...instance.loading.loader import requirements_of

MAX_SOURCE_BYTES = 10 * 1024 * 1024
_OPAQUE_CALLS = {"exec", "globals", "setattr", "vars"}
"""A module that calls these may define names that its source does not show."""


def check_package(package: Path, class_name: str, *, installs: bool = False) -> None:
    """Check that a function can be found in a package. Blocking.

    Args:
        package: a .py file or the directory of an extracted archive.
        class_name: ``module.Class``, ``module.function``, or a module with a function `process`.
        installs: the function's runtime installs requirements.

    Raises:
        PackageError: says what is missing or wrong, in one line.
    """
    if package.is_dir():
        if requirements_of(package) is not None and not installs:
            raise PackageError(
                "the package has a requirements.txt, which is installed for runtimeEnv spark only; put the modules"
                " themselves into it"
            )
        _check_python(package)
    if not all(part.isidentifier() for part in class_name.split(".")):
        raise PackageError(f"className {class_name!r} is no name of the form module.Class or module.function")
    module, _, attribute = class_name.rpartition(".")
    file = _find_module(package, module) if module else None
    if file is not None:
        tree = _parse(file, package)
        if _defines(tree, attribute):
            _check_target(tree, attribute, class_name)
            return
    whole = _find_module(package, class_name)
    if whole is not None:
        tree = _parse(whole, package)
        if not _defines(tree, "process"):
            raise PackageError(f"className {class_name}: module {class_name} has no function process")
        _check_target(tree, "process", class_name)
        return
    if file is not None:
        raise PackageError(
            f"className {class_name}: module {module} has no {attribute}; it defines {_listed(_public(tree))}"
        )
    missing = module or class_name
    raise PackageError(f"className {class_name}: the package has no module {missing}; it has {_modules(package)}")


def _check_python(root: Path) -> None:
    """Refuse a pickled function of another Python; what says so beside other code is the author's own file."""
    version = root / VERSION_FILE
    if (root / PICKLE_FILE).is_file() and version.is_file():
        reason = version_refusal(version.read_text(encoding="utf-8", errors="replace").strip()[:20])
        if reason:
            raise PackageError(reason)


def _find_module(package: Path, module: str) -> Path | None:
    parts = module.split(".")
    if package.is_file():
        return package if parts == [package.stem] else None
    for candidate in (package.joinpath(*parts, "__init__.py"), package.joinpath(*parts[:-1], parts[-1] + ".py")):
        if candidate.is_file():
            return candidate
    return None


def _parse(file: Path, package: Path) -> ast.Module:
    shown = file.name if package.is_file() else str(file.relative_to(package))
    try:
        if file.stat().st_size > MAX_SOURCE_BYTES:
            raise PackageError(f"{shown} is larger than {MAX_SOURCE_BYTES} bytes; put data into files of its own")
        source = file.read_bytes()
        if b"\0" in source:  # Python releases differ in what they raise
            raise PackageError(f"{shown} has a syntax error: source code string cannot contain null bytes")
        tree = ast.parse(source, shown)
        compile(tree, shown, mode="exec", dont_inherit=True)
    except SyntaxError as exc:
        where = f" in line {exc.lineno}" if exc.lineno else ""
        raise PackageError(f"{shown} has a syntax error{where}: {exc.msg}") from exc
    except (ValueError, UnicodeDecodeError, RecursionError, MemoryError) as exc:
        raise PackageError(f"{shown} is no Python source: {exc or type(exc).__name__}") from exc
    return tree


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run at import, those inside of if, try, with and loops included."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                break
            for inner in getattr(statement, name, []):
                if isinstance(inner, ast.ExceptHandler):
                    yield from _top_level(inner.body)
                elif isinstance(inner, ast.stmt):
                    yield from _top_level([inner])


def _names(tree: ast.Module) -> Iterator[str]:
    for statement in _top_level(tree.body):
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in aliases)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.With() | ast.For():
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        yield node.id


def _defines(tree: ast.Module, name: str) -> bool:
    names = set(_names(tree))
    if name in names or "*" in names or "__getattr__" in names:
        return True
    return any(isinstance(node, ast.Name) and node.id in _OPAQUE_CALLS for node in ast.walk(tree))


def _check_target(tree: ast.Module, name: str, class_name: str) -> None:
    """Refuse a class without `process` where its source shows that there can be none."""
    for statement in _top_level(tree.body):
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            plain_bases = all(_last_name(base) in ("Function", "object") for base in statement.bases)
            has_process = any(inner == "process" for inner in _class_names(statement))
            if plain_bases and not has_process and not statement.decorator_list and not statement.keywords:
                raise PackageError(f"className {class_name}: class {name} has no method process(self, input, context)")


def _class_names(statement: ast.ClassDef) -> Iterator[str]:
    yield from _names(ast.Module(body=statement.body, type_ignores=[]))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _public(tree: ast.Module) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return sorted({node.name for node in _top_level(tree.body) if isinstance(node, kinds)})


def _modules(package: Path) -> str:
    if package.is_file():
        return package.stem
    found = []
    for file in sorted(package.rglob("*.py"))[:1000]:
        parts = list(file.relative_to(package).with_suffix("").parts)
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return _listed([name for name in found if name])


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8]) or "nothing"
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
