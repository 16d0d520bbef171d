"""Intake of packages: checks what a request uploads, stores it, and finds it again by a function's record.

Whether a package holds the class of its function is read from the source, without running any of it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from ...api.pickled_function import PICKLE_FILE, VERSION_FILE, version_refusal
from ...config.connector_config import BUILT_IN, ConnectorConfig
from ...config.function_config import SPARK, FunctionConfig
from ...errors import PackageError, RequestRefused
from ...instance.loading.loader import requirements_of
from ...metadata.packages import PackageStore, Upload
from ...metadata.packages_extract import SUFFIXES
from ...wire.functions_pb2 import PackageLocationMetaData
from ..cluster.hand_over import Deadline

PACKAGE_PREFIX = "package-"
"""The path of a package in a record: this, and its id."""
NAME_BYTES_MAX = 200
MAX_SOURCE_BYTES = 10 * 1024 * 1024

_PACKAGE_ID = re.compile(r"[0-9a-f]{64}")
_OPAQUE_CALLS = {"exec", "globals", "setattr", "vars"}
"""A module that calls these may define names that its source does not show."""


class PackageIntake:
    """Packages as requests bring them and records name them."""

    def __init__(self, packages: PackageStore) -> None:
        self._packages = packages

    def used(self, upload: Upload | None) -> contextlib.AbstractContextManager[None]:
        """Keep an upload from being removed meanwhile."""
        return self._packages.used(upload.package_id) if upload else contextlib.nullcontext()

    async def keep(
        self, upload: Upload, file_name: str | None, config: FunctionConfig | ConnectorConfig, deadline: Deadline
    ) -> PackageLocationMetaData:
        """Check a package and make it durable.

        Args:
            upload: the package.
            file_name: the name that came with it.
            config: of its function.
            deadline: of the request.

        Raises:
            PackageError: it is no package, or has no such function.
            RequestRefused: 400, its name is none of a package.
        """
        name = _file_name(file_name, config)
        package = await self._packages.unpack(upload, name)
        await asyncio.to_thread(_check, package, config)
        await deadline.ask(lambda: self._packages.keep(upload, name))
        return PackageLocationMetaData(packagePath=PACKAGE_PREFIX + upload.package_id, originalFileName=name)

    async def keep_named(self, upload: Upload, location: PackageLocationMetaData, deadline: Deadline) -> None:
        """Make sure that a package is there after a record names it.

        It may have been stored long ago, without a name, and removed between the request's look and its record. From
        the record on nobody removes it.
        """
        async with deadline.bound("the change was made, and its package could not be looked at"):
            await deadline.ask(lambda: self._packages.keep(upload, location.originalFileName))

    async def check_stored(self, location: PackageLocationMetaData, config: FunctionConfig | ConnectorConfig) -> None:
        """Check the package of a record against another config.

        Raises:
            PackageError: it has no such function.
        """
        if not is_built_in(location):
            await asyncio.to_thread(_check, await self.fetch(location), config)

    async def fetch(self, location: PackageLocationMetaData) -> Path:
        """Return a record's package, extracted on this machine; an installed connector has none."""
        if is_built_in(location):
            return Path()
        return await self._packages.fetch(package_id(location), package_name(location))


def built_in_location(name: str) -> PackageLocationMetaData:
    """Return what the record of an installed connector has in place of a package."""
    return PackageLocationMetaData(packagePath=BUILT_IN + name)


def is_built_in(location: PackageLocationMetaData) -> bool:
    """Return whether a record is of an installed connector."""
    return location.packagePath.startswith(BUILT_IN)


def package_id(location: PackageLocationMetaData) -> str:
    """Return the id in a record's package path.

    Raises:
        PackageError: the path is of another kind, such as another system writes.
    """
    identity = location.packagePath.removeprefix(PACKAGE_PREFIX)
    if identity == location.packagePath or not _PACKAGE_ID.fullmatch(identity):
        raise PackageError(f"package path {location.packagePath[:80]!r} is not of the form {PACKAGE_PREFIX}<sha256>")
    return identity


def package_name(location: PackageLocationMetaData) -> str:
    """Return the file name in a record, by which an instance finds the module.

    Raises:
        PackageError: it is no bare name: a record may come from elsewhere, and the name becomes a file's.
    """
    name = location.originalFileName
    if name != _bare(name) or not name.endswith(SUFFIXES) or not name.isprintable():
        raise PackageError(f"the package's file name {name[:80]!a} is no bare name of a {', '.join(SUFFIXES)} file")
    return name


def url_refusal(url: str) -> str:
    """Return why a package is not taken from a URL."""
    if url.startswith(("function://", "sink://", "source://")):
        return f"Function Package management service is disabled. Please enable it to use {url}; or upload it as data"
    return "Function Package url is not valid.supported url (http/https/file); upload the file as data"


def _check(package: Path, config: FunctionConfig | ConnectorConfig) -> None:
    check_package(package, config.class_name or "", installs=config.runtime_env == SPARK)


def _bare(path: str) -> str:
    """Return the last part of a path of any system."""
    return PureWindowsPath(PurePosixPath(path).name).name


def _file_name(sent: str | None, config: FunctionConfig | ConnectorConfig) -> str:
    """Return the package's bare name; a module is found by it, so an upload without a name takes that of `py`."""
    name = _bare(sent or config.file_name or "")
    if not name:
        name = (config.class_name or "").split(".")[0] + ".py"
    if not name.endswith(SUFFIXES) or name in SUFFIXES:
        raise RequestRefused(400, f"the package {name} is not a {', '.join(SUFFIXES)} file; give one of these")
    if not name.isprintable() or len(name.encode()) > NAME_BYTES_MAX:
        raise RequestRefused(400, f"the package name {name[:40]!r} must be 1 to {NAME_BYTES_MAX} printable bytes")
    return name


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
    found: dict[str, ast.Module] = {}
    for name, wanted in ((module, attribute), (class_name, "process")):
        file = _find_module(package, name) if name else None
        if file is not None:
            found[name] = _parse(file, package)
            if _defines(found[name], wanted):
                _check_target(found[name], wanted, class_name)
                return
    if class_name in found:
        raise PackageError(f"className {class_name}: module {class_name} has no function process")
    if module in found:
        defined = _listed(_public(found[module]))
        raise PackageError(f"className {class_name}: module {module} has no {attribute}; it defines {defined}")
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


def _top_level(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class that run at import, those inside of if, try, with and loops too."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt):
            yield inner
        is_compound = isinstance(inner, ast.stmt | ast.ExceptHandler)
        if is_compound and not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _top_level(inner)


def _names(scope: ast.Module | ast.ClassDef) -> Iterator[str]:
    for statement in _top_level(scope):
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
    for statement in _top_level(tree):
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            plain_bases = all(_last_name(base) in ("Function", "object") for base in statement.bases)
            has_process = "process" in _names(statement)
            if plain_bases and not has_process and not statement.decorator_list and not statement.keywords:
                raise PackageError(f"className {class_name}: class {name} has no method process(self, input, context)")


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _public(tree: ast.Module) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return sorted({node.name for node in _top_level(tree) if isinstance(node, kinds)})


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
