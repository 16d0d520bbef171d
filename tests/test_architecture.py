"""Imports go down only: the floors of the house, read from the syntax trees and from running processes."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import magnetar
import pytest

ROOT = Path(magnetar.__file__).parent
NOT_THE_PACKAGE = {"pyspark_magnetar", "tests", "examples", "benchmarks", "docs", "build", "dist"}

FLOORS: dict[str, int] = {
    "errors": 0,
    "tasks": 0,
    "wire": 0,
    "api": 0,
    "metadata.store": 1,
    "connectors": 1,
    "broker": 2,
    "client": 2,
    "metadata.functions": 3,
    "membership": 3,
    "scheduler": 3,
    "runtime": 3,
    "worker": 4,
    "cli": 5,
}
"""Room -> floor. A room may import rooms of lower floors; rooms of one floor do not know each other."""

FOR_ALL = {"errors", "tasks", ""}
"""What every package may import: the errors, the tasks, and the package itself for its version."""

NEIGHBOURS = {("api.config", "wire")}
"""Imports inside floor 0: what a person asks for is stored as a record of the wire."""

WRITTEN_AS_A_USER_WOULD = {"cli.demo_functions"}
"""Code that is deployed, not imported: it knows the package by its name only."""

NO_IO_ROOMS = ("wire", "api")
IO_MODULES = {
    "asyncio",
    "concurrent",
    "ftplib",
    "grpc",
    "http",
    "httpx",
    "io",
    "mmap",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "smtplib",
    "socket",
    "socketserver",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib3",
    "uvicorn",
    "uvloop",
}


class Import(NamedTuple):
    """One import statement: where it stands, and the module inside the package or outside that it names."""

    module: str
    line: int
    inside: str | None
    outside: str | None


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package with its dotted name below ``magnetar``."""
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        if relative.parts[0] in NOT_THE_PACKAGE or relative.parts[0].startswith(".") or path.stem.endswith("_pb2"):
            continue
        parts = relative.with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(name: str, path: Path) -> Iterator[Import]:
    """The imports of a module, also those inside functions."""
    is_package = path.stem == "__init__"
    package = name.split(".") if name else []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, node.lineno, None, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield Import(name, node.lineno, None, node.module or "")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + (1 if is_package else 0)]
            target = [*base, *(node.module.split(".") if node.module else [])]
            if node.module:
                yield Import(name, node.lineno, ".".join(target), None)
            else:
                for alias in node.names:
                    yield Import(name, node.lineno, ".".join([*target, alias.name]), None)


def room_of(module: str) -> str:
    """The room that a module belongs to."""
    parts = module.split(".")
    if parts[0] == "metadata" and len(parts) > 1:
        return "metadata.store" if parts[1].startswith("store") else "metadata.functions"
    return parts[0]


def all_imports() -> list[Import]:
    return [found for name, path in modules() for found in imports_of(name, path)]


def test_every_module_belongs_to_a_room() -> None:
    unknown = {name for name, _ in modules() if name and room_of(name) not in FLOORS and name != "metadata"}
    assert not unknown, f"give these a floor in FLOORS: {sorted(unknown)}"


def test_imports_go_down_only() -> None:
    wrong = []
    for found in all_imports():
        room = room_of(found.module)
        if found.inside is None or not room:
            continue
        target = room_of(found.inside)
        if target in FOR_ALL or target == room or target not in FLOORS:
            continue
        if any(found.module.startswith(start) and target == to for start, to in NEIGHBOURS):
            continue
        if FLOORS[target] >= FLOORS[room]:
            wrong.append(
                f"{found.module}:{found.line} (floor {FLOORS[room]}) imports {found.inside} ({FLOORS[target]})"
            )
    assert not wrong, "\n".join(wrong)


def test_imports_inside_the_package_are_relative() -> None:
    wrong = [
        f"{found.module}:{found.line}"
        for found in all_imports()
        if found.outside and found.outside.split(".")[0] == "magnetar" and found.module not in WRITTEN_AS_A_USER_WOULD
    ]
    assert not wrong, wrong


TASK_MAKERS = {"create_task", "ensure_future"}


def tasks_made(tree: ast.AST, groups: frozenset[str] = frozenset()) -> Iterator[int]:
    """The lines that name a maker of tasks, but for a TaskGroup that the same function has opened with `async with`."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from tasks_made(node, groups_opened(node))
                continue
            case ast.Attribute(value=value, attr=name) if name in TASK_MAKERS:
                if not (isinstance(value, ast.Name) and value.id in groups):
                    yield node.lineno
            case ast.Name(id=name) if name in TASK_MAKERS:
                yield node.lineno
            case ast.ImportFrom(names=names) if {each.name for each in names} & TASK_MAKERS:
                yield node.lineno
            case ast.Constant(value=str() as name) if name in TASK_MAKERS:
                yield node.lineno
        yield from tasks_made(node, groups)


def groups_opened(function: ast.AST) -> frozenset[str]:
    """The names that a function itself binds to an `asyncio.TaskGroup` by `async with`."""
    found: set[str] = set()
    to_see = list(ast.iter_child_nodes(function))
    while to_see:
        node = to_see.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        to_see += ast.iter_child_nodes(node)
        if isinstance(node, ast.AsyncWith):
            for item in node.items:
                match item:
                    case ast.withitem(
                        context_expr=ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="TaskGroup")),
                        optional_vars=ast.Name(id=name),
                    ):
                        found.add(name)
    return frozenset(found)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("asyncio.create_task(work())", [1]),
        ("loop = asyncio.get_running_loop()\nloop.create_task(work())", [2]),
        ("from asyncio import ensure_future", [1]),
        ("make = asyncio.ensure_future", [1]),
        ("getattr(loop, 'create_task')(work())", [1]),
        ("async def f():\n async with asyncio.TaskGroup() as group:\n  group.create_task(work())", []),
        ("async def f(group):\n group.create_task(work())", [2]),
        ("async def f():\n async with asyncio.TaskGroup() as group:\n  def g():\n   group.create_task(w())", [4]),
        ("async def f():\n async with other() as group:\n  group.create_task(work())", [3]),
        ("tasks.start(work(), 'name')", []),
    ],
)
def test_tasks_that_nobody_owns_are_found(source: str, lines: list[int]) -> None:
    assert list(tasks_made(ast.parse(source))) == lines


def test_tasks_are_made_in_one_place() -> None:
    wrong = [
        f"{name}:{line}"
        for name, path in modules()
        if room_of(name) != "tasks"
        for line in tasks_made(ast.parse(path.read_text()))
    ]
    remedy = "have a `TaskSet` start it (magnetar/tasks), or an `asyncio.TaskGroup` of the same function"
    assert not wrong, f"tasks that nobody owns, {remedy}: {wrong}"


def test_the_lowest_floor_does_no_input_and_output() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.outside}"
        for found in all_imports()
        if found.outside and room_of(found.module) in NO_IO_ROOMS and found.outside.split(".")[0] in IO_MODULES
    ]
    assert not wrong, "\n".join(wrong)


def test_the_package_of_the_metadata_imports_nothing() -> None:
    found = list(imports_of("metadata", ROOT / "metadata" / "__init__.py"))
    assert not [one for one in found if one.outside != "__future__"]


def third_party_of(statement: str) -> set[str]:
    """The top-level modules outside the standard library that a statement imports, beside what each start does."""
    code = f"import json, sys; before = set(sys.modules); {statement}; print(json.dumps([*set(sys.modules) - before]))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    known = set(sys.stdlib_module_names) | {"magnetar"}
    found = {name.split(".")[0] for name in json.loads(output)}
    return {name for name in found if name not in known and not name.startswith("_")}


WIRE = {"google", "google_crc32c", "cramjam", "cython_runtime"}
HTTP_SERVER = {"anyio", "httptools", "python_multipart", "starlette", "typing_extensions", "uvicorn"}
HTTP_CLIENT = {"anyio", "certifi", "h11", "httpcore", "httpx", "idna"}
TABLES = {"pygments", "rich"}  # httpx brings them to the commands; no server may have them
GRPC = {"grpc", "grpc_tools", "opentelemetry", "typing_extensions"}  # what grpc itself imports where it is installed
FASTAPI = {"annotated_doc", "annotated_types", "fastapi", "pydantic", "pydantic_core", "typing_inspection"}

MAY_IMPORT: dict[str, tuple[str, set[str]]] = {
    "magnetar --version": ("from magnetar.cli import main", {"click"}),
    "magnetar functions": ("from magnetar.cli import functions", {"click"} | HTTP_CLIENT | TABLES),
    "the client": ("import magnetar.client.client", WIRE | {"uvloop"}),
    "a function's author": ("from magnetar import Function, Context, SerDe", set()),
    "the broker": (
        "from magnetar.cli import broker_process, standalone; import uvloop",
        WIRE | HTTP_SERVER | {"click", "uvloop"},
    ),
    "the worker": (
        "from magnetar.cli import serve_worker; from magnetar.broker.admin.http_client import import_httpx;"
        " import_httpx(); from magnetar.worker import service; import uvloop",
        WIRE | HTTP_SERVER | HTTP_CLIENT | GRPC | FASTAPI | {"click", "cloudpickle", "prometheus_client", "uvloop"},
    ),
    "what standalone's processes share": (
        "from magnetar.cli import standalone; standalone.import_shared()",
        WIRE | HTTP_SERVER | HTTP_CLIENT | GRPC | {"click", "setproctitle", "uvloop"},
    ),
    "the state store": (
        "from magnetar.cli import main, serve_state_store; from magnetar.runtime.state import server",
        {"click", "cython_runtime", "google"} | GRPC,
    ),
    "the zygote": ("from magnetar.runtime.process import zygote", WIRE | GRPC | {"setproctitle", "uvloop"}),
}
"""Process -> what it imports, and which libraries it may hold: each costs memory in every process that has it."""


@pytest.mark.parametrize("process", MAY_IMPORT)
def test_process_imports_only_what_it_may(process: str) -> None:
    statement, allowed = MAY_IMPORT[process]
    assert not third_party_of(statement) - allowed
