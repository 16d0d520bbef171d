"""Check that a package contains its function's class, by reading the source without running it.

Sources are untrusted: this code never recurses into a syntax tree, and servers read sources in a limited process
(`source.read_source`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from ...api.pickled_function import PICKLE_FILE, VERSION_FILE, version_refusal
from ...errors import PackageError
from ..loading.loader import requirements_of

MAX_SOURCE_BYTES = 10 * 1024 * 1024
_MODULES_MAX = 1000
_OPAQUE_CALLS = {"exec", "globals", "setattr", "vars"}
"""Functions whose callers may define names that are not visible in the source."""
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


class Modules:
    """The modules of a package."""

    def __init__(self, package: Path, reads: Callable[[str], None] = lambda _: None) -> None:
        """Create a reader of modules without reading a file.

        Args:
            package: a .py file or the directory of an extracted archive.
            reads: called with the name of each file before it is parsed.
        """
        self.package = package
        self._reads = reads
        self._last: tuple[Path, ast.Module] | None = None

    def find(self, module: str) -> Path | None:
        """Return the file of a module, or None."""
        parts = module.split(".")
        if self.package.is_file():
            return self.package if parts == [self.package.stem] else None
        directory = self.package.joinpath(*parts[:-1])
        for candidate in (directory / parts[-1] / "__init__.py", directory / (parts[-1] + ".py")):
            if candidate.is_file():
                return candidate
        return None

    def tree(self, file: Path) -> ast.Module:
        """Return the syntax tree of a file; only the last tree is cached.

        Raises:
            PackageError: the file is not valid Python source, or is too large or too costly to parse.
        """
        if self._last is None or self._last[0] != file:
            self._last = None  # free memory before parsing the next file
            shown = file.name if self.package.is_file() else str(file.relative_to(self.package))
            self._reads(shown)
            self._last = file, _parse(file, shown)
        return self._last[1]

    def files(self) -> dict[str, Path]:
        """Return up to `_MODULES_MAX` module files by module name."""
        if self.package.is_file():
            return {self.package.stem: self.package}
        found = {}
        for file in sorted(self.package.rglob("*.py"))[:_MODULES_MAX]:
            parts = list(file.relative_to(self.package).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if name:
                found[name] = file
        return found

    def names(self) -> str:
        """Return the names of the modules, for an error."""
        return listed(list(self.files()))


def _parse(file: Path, shown: str) -> ast.Module:
    try:
        if file.stat().st_size > MAX_SOURCE_BYTES:
            raise PackageError(f"{shown} is larger than {MAX_SOURCE_BYTES} bytes: move data into separate files")
        source = file.read_bytes()
        if b"\0" in source:  # Python releases raise different errors
            raise PackageError(f"{shown} has a syntax error: source code string cannot contain null bytes")
        tree = ast.parse(source, shown)
        compile(tree, shown, mode="exec", dont_inherit=True)
    except SyntaxError as exc:
        where = f" on line {exc.lineno}" if exc.lineno else ""
        raise PackageError(f"{shown} has a syntax error{where}: {exc.msg}") from exc
    except (RecursionError, MemoryError) as exc:
        what = "nests too deeply" if isinstance(exc, RecursionError) else "takes too much memory to parse"
        raise PackageError(f"{shown} {what}: split it, and move data into files that are not Python") from exc
    except ValueError as exc:
        raise PackageError(f"{shown} is not Python source: {exc}") from exc
    return tree


def check_package(modules: Modules, class_name: str, *, installs: bool = False) -> None:
    """Check that a package contains its function; blocking.

    Args:
        modules: modules of the package.
        class_name: ``module.Class``, ``module.function``, or a module with a function `process`.
        installs: whether requirements are installed, as for functions, but not for a connector's transform function.

    Raises:
        PackageError: one line about the problem.
    """
    if modules.package.is_dir():
        check_archive(modules.package, installs=installs)
        _check_python(modules.package)
    if not all(part.isidentifier() for part in class_name.split(".")):
        raise PackageError(f"invalid className {class_name!r}: expected module.Class or module.function")
    module, _, attribute = class_name.rpartition(".")
    found: dict[str, ast.Module] = {}
    for name, wanted in ((module, attribute), (class_name, "process")):
        file = modules.find(name) if name else None
        if file is not None:
            found[name] = modules.tree(file)
            if defines(found[name], wanted):
                _check_target(found[name], wanted, class_name)
                return
    if class_name in found:
        raise PackageError(f"className {class_name}: module {class_name} has no function process")
    if module in found:
        defined = listed(public_names(found[module]))
        raise PackageError(f"className {class_name}: module {module} has no {attribute}; it defines {defined}")
    missing = module or class_name
    raise PackageError(f"className {class_name}: the package has no module {missing}; it has {modules.names()}")


def check_archive(root: Path, *, installs: bool = False) -> None:
    """Reject an archive with requirements where they are not installed.

    Raises:
        PackageError: the archive has requirements.
    """
    if requirements_of(root) is not None and not installs:
        raise PackageError(
            "the package has a requirements.txt, which is installed for functions only: include the modules in the"
            " package, or install them where the worker runs"
        )


def _check_python(root: Path) -> None:
    """Reject a function pickled by another Python version; a version file without a pickle is ignored."""
    version = root / VERSION_FILE
    if (root / PICKLE_FILE).is_file() and version.is_file():
        reason = version_refusal(version.read_text(encoding="utf-8", errors="replace").strip()[:20])
        if reason:
            raise PackageError(reason)


def top_level(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class that run on import, including those inside if, try, with and loops."""
    waiting = [ast.iter_child_nodes(node)]
    while waiting:
        inner = next(waiting[-1], None)
        if inner is None:
            waiting.pop()
            continue
        if isinstance(inner, ast.stmt):
            yield inner
        is_compound = isinstance(inner, ast.stmt | ast.ExceptHandler | ast.match_case)
        if is_compound and not isinstance(inner, _FUNCTIONS | ast.ClassDef):
            waiting.append(ast.iter_child_nodes(inner))


def _names(scope: ast.Module | ast.ClassDef) -> Iterator[str]:
    for statement in top_level(scope):
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in aliases)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.With() | ast.For():
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        yield node.id


def defines(tree: ast.Module, name: str) -> bool:
    """Return whether a module defines, or may define, a name."""
    names = set(_names(tree))
    if name in names or "*" in names or "__getattr__" in names:
        return True
    return any(isinstance(node, ast.Name) and node.id in _OPAQUE_CALLS for node in ast.walk(tree))


def _check_target(tree: ast.Module, name: str, class_name: str) -> None:
    """Reject a class that has no `process` according to its source."""
    for statement in top_level(tree):
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            plain_bases = all(last_name(base) in ("Function", "object") for base in statement.bases)
            has_process = "process" in _names(statement)
            if plain_bases and not has_process and not statement.decorator_list and not statement.keywords:
                raise PackageError(f"className {class_name}: class {name} has no method process(self, input, context)")


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name; empty for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def public_names(tree: ast.Module) -> list[str]:
    """Return the functions and classes of a module."""
    return sorted({node.name for node in top_level(tree) if isinstance(node, _FUNCTIONS | ast.ClassDef)})


def listed(names: list[str]) -> str:
    """Format the first names of a list, for an error."""
    shown = ", ".join(names[:8]) or "nothing"
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
