"""Imports point from higher layers to lower ones, in the whole package and inside each of its packages.

Read from the syntax trees, imports for type checkers and those inside functions included, and from running processes.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import magnetar
import pytest

ROOT = Path(magnetar.__file__).parent
BESIDE_IT = {"pyspark_magnetar", "pyspark_magnetar_pulsar"}
NOT_THE_PACKAGE = BESIDE_IT | {"tests", "examples", "benchmarks", "docs", "build", "dist", "setup.py"}

LAYERS: tuple[tuple[str, ...], ...] = (
    ("compiled", "errors", "tasks", "wire"),
    ("security",),
    ("api", "config", "web", "state", "metadata.store", "metadata.replicated_log"),
    ("broker", "client"),
    ("connectors", "metadata", "membership", "scheduler"),
    ("instance",),
    ("spark",),
    ("runtime",),
    ("worker",),
    ("cli",),
    ("testing", "__main__"),
)
"""Packages from the lowest layer to the highest. A package imports packages of lower layers only; those of one layer do
not know each other."""

INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "security": (
        ("local_token", "roles", "server_tls", "server_tls_settings", "tls_failure"),
        ("credentials",),
        ("tls", "authentication", "authorization"),
        ("",),
    ),
    "client": (
        ("checks", "encryption", "outgoing_message", "receiving", "schemas", "statistics"),
        ("connections", "interceptors"),
        ("config",),
        ("producers", "consumers"),
        ("typed",),
        ("deploy", "deduplication", "lock", "table_view", "listener_threads"),
        ("client",),
        ("blocking", ""),
    ),
    "broker": (
        ("listeners",),
        ("config", "cycles", "times", "errors", "schemas"),
        ("advertised",),
        ("storage",),
        ("policies",),
        ("dispatch",),
        ("topics",),
        ("session",),
        ("service",),
        ("admin",),
    ),
    "broker.storage": (
        ("config", "disk", "entry", "ports"),
        ("journal",),
        ("ledgers", "cursors"),
        ("port",),
        ("compacted_view",),
        ("catalogue", "memory"),
        ("core", "hidden_logs", "logs", "topic_log"),
        ("recovery", "checkpoint", "journal_cut"),
        ("store",),
        ("",),
    ),
    "broker.admin": (
        ("bodies", "call", "forwarded_identity", "routing", "dynamic_settings", "guard"),
        ("policy_bodies",),
        ("backlog_quotas",),
        ("topics",),
        ("permissions", "resource_quotas"),
        ("namespaces",),
        ("broker_stats", "brokers", "clusters", "tenants", "resource_groups", "schemas", "metrics", "forward"),
        ("absent",),
        ("app",),
    ),
    "instance": (
        ("spec", "system_user", "stopping", "gate", "publish_request", "loop_calls", "turns"),
        ("logs",),
        ("trees",),
        ("loading", "state"),
        ("values",),
        ("",),
        ("tracing", "examination", "deaths"),
        ("acks", "exact"),
        ("connectors",),
        ("arrangement",),
        ("pipeline",),
    ),
    "spark": (
        ("source",),
        ("spark_version", "worker_setup"),
        ("java", "cluster", "task_killer", "task_libraries", "class_archive", "job_progress", "repeatable_plans"),
        ("stream_plans",),
        ("session_config",),
        ("session",),
        ("jobs",),
        ("",),
    ),
    "runtime": (
        ("interface", "control", "instance_answers", "requirements", "isolation"),
        ("process", "thread", "socket_directory"),
        ("spark",),
        ("supervisor",),
        ("manager",),
    ),
    "worker": (
        ("config",),
        ("cluster",),
        ("functions",),
        ("rest",),
        ("admission",),
        ("assembly",),
        ("service",),
    ),
    "cli": (
        ("nearest", "properties_file"),
        (
            "failure",
            "client_file",
            "security_settings",
            "settings",
            "rest",
            "output",
            "config_flags",
            "instance_logs",
            "local_run",
            "local_metrics",
            "pulsar_commands",
            "global_flags",
            "suggestions",
            "reload",
            "reach",
            "local_surroundings",
        ),
        ("main",),
        ("topics",),
        ("init", "messages", "servers"),
        ("functions",),
        ("backup", "cluster", "connectors", "packages", "security"),
        ("demo",),
        ("__main__",),
    ),
}
"""The same inside a package: its subpackages, and the modules beside them; "" is its ``__init__`` and every module that
is not named. Modules of one line may know each other, subpackages of one line do not."""

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""Imports that point upwards, with the reason."""

FOR_ALL = {"errors", "tasks", ""}
"""What every package may import: the errors, the tasks, and the package itself for its version."""

WRITTEN_AS_A_USER_WOULD = {"cli.demo.demo_functions"}
"""Code that is deployed, not imported: it knows the package by its name only."""

WITHOUT_IO = ("wire", "api", "config")
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
            for alias in node.names:
                submodule = ROOT.joinpath(*target, alias.name)
                is_module = submodule.with_suffix(".py").exists() or submodule.is_dir()
                inside = [*target, alias.name] if is_module or not node.module else target
                yield Import(name, node.lineno, ".".join(inside), None)


def within(module: str, package: str) -> bool:
    """Whether a module is a package, or lies in it."""
    return module == package or module.startswith(package + ".")


def package_of(module: str) -> str:
    """The package of `LAYERS` that a module belongs to; itself if there is none."""
    known = [package for layer in LAYERS for package in layer if within(module, package)]
    return max(known, key=len, default=module)


def layer_of(package: str) -> int:
    """The number of a package's layer, the lowest 0; -1 of what every package may import."""
    return next((number for number, layer in enumerate(LAYERS) if package in layer), -1)


def place_inside(package: str, module: str) -> tuple[int, str]:
    """Where a module stands in the order of `INSIDE`: the number of its line, and the entry that names it."""
    parts = module[len(package) + 1 :].split(".")
    for number, line in enumerate(INSIDE[package]):
        if parts[0] in line and parts[0]:
            return number, parts[0]
    rest = (number for number, line in enumerate(INSIDE[package]) if "" in line)
    return next(rest, len(INSIDE[package])), ""


def points_upwards(module: str, target: str) -> str:
    """Why one module may not import another; empty if it may."""
    ours, theirs = package_of(module), package_of(target)
    if ours != theirs:
        if theirs in FOR_ALL or not ours:
            return ""
        if layer_of(theirs) >= layer_of(ours):
            return f"{theirs} is not below {ours}"
        return ""
    for package in INSIDE:
        if not (within(module, package) and within(target, package)):
            continue
        (here, name), (there, other) = place_inside(package, module), place_inside(package, target)
        are_packages = (ROOT / Path(*package.split("."), name or "-")).is_dir()
        if there > here or (there == here and name != other and are_packages):
            return f"in {package}, {other or 'the rest'} is not below {name or 'the rest'}"
    return ""


@cache
def all_imports() -> list[Import]:
    return [found for name, path in modules() for found in imports_of(name, path)]


def test_every_module_belongs_to_a_package() -> None:
    unknown = {name for name, _ in modules() if name and not any(package_of(name) in layer for layer in LAYERS)}
    assert not unknown, f"give these a layer in LAYERS: {sorted(unknown)}"


def test_every_subpackage_has_its_place() -> None:
    names = {name for name, path in modules() if path.stem == "__init__"}
    unknown = {
        name
        for name in names
        for package in INSIDE
        if name.startswith(package + ".")
        and name.count(".") == package.count(".") + 1
        and not any(name.rsplit(".", 1)[1] in line for line in INSIDE[package])
    }
    assert not unknown, f"give these a place in INSIDE: {sorted(unknown)}"


def test_imports_point_to_lower_layers() -> None:
    found = {
        (one.module, one.inside): f"{one.module}:{one.line} imports {one.inside}: {why}"
        for one in all_imports()
        if one.inside is not None and (why := points_upwards(one.module, one.inside))
    }
    wrong = [text for pair, text in found.items() if pair not in EXCEPTIONS]
    assert not wrong, "\n".join(wrong)
    assert not (stale := set(EXCEPTIONS) - set(found)), f"these are no exceptions any more: {sorted(stale)}"


def test_the_broker_knows_no_storage_engine() -> None:
    """Everything above the storage uses its port, so that an engine can be replaced."""
    port = ("port", "entry", "compacted_view", "cursors.names", "cursors.bitmap")
    allowed = {f"broker.storage.{name}" for name in port}
    wrong = [
        f"{one.module}:{one.line} imports {one.inside}"
        for one in all_imports()
        if within(one.module, "broker")
        and not within(one.module, "broker.storage")
        and one.inside is not None
        and within(one.inside, "broker.storage")
        and one.inside not in allowed
    ]
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


def test_traces_are_made_in_one_place() -> None:
    wrong = [
        f"{found.module}:{found.line}"
        for found in all_imports()
        if found.outside and within(found.outside, "opentelemetry") and not within(found.module, "instance.tracing")
    ]
    assert not wrong, f"OpenTelemetry is there where somebody asks for it only; see instance/tracing: {wrong}"


def test_tasks_are_made_in_one_place() -> None:
    wrong = [
        f"{name}:{line}"
        for name, path in modules()
        if package_of(name) != "tasks"
        for line in tasks_made(ast.parse(path.read_text()))
    ]
    remedy = "have a `TaskSet` start it (magnetar/tasks), or an `asyncio.TaskGroup` of the same function"
    assert not wrong, f"tasks that nobody owns, {remedy}: {wrong}"


def test_protocol_and_configs_do_no_input_and_output() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.outside}"
        for found in all_imports()
        if found.outside and package_of(found.module) in WITHOUT_IO and found.outside.split(".")[0] in IO_MODULES
    ]
    assert not wrong, "\n".join(wrong)


def test_the_package_of_the_metadata_imports_nothing() -> None:
    found = list(imports_of("metadata", ROOT / "metadata" / "__init__.py"))
    assert not [one for one in found if one.outside != "__future__"]


def reached_from(package: str) -> set[str]:
    """The modules that a package imports, directly or through others."""
    edges: dict[str, set[str]] = {}
    for one in all_imports():
        if one.inside is not None:
            edges.setdefault(one.module, set()).add(one.inside)
    found: set[str] = set()
    to_see = [module for module in edges if within(module, package)]
    while to_see:
        module = to_see.pop()
        if module not in found:
            found.add(module)
            to_see += edges.get(module, ())
    return found


def test_the_data_source_needs_nothing_of_instances() -> None:
    below = {"errors", "tasks", "wire", "security", "api", "config", "web", "client"}
    others = {package for layer in LAYERS for package in layer} - below - {"spark"}
    found = reached_from("spark.source")
    wrong = {module for module in found if package_of(module) in others}
    wrong |= {module for module in found if within(module, "spark") and not within(module, "spark.source")}
    assert not wrong, f"the data source is used without functions, and reaches {sorted(wrong)}"


@cache
def imported_by(statement: str) -> frozenset[str]:
    """The modules that a statement imports beside what each start does."""
    code = (
        f"import json, sys; before = set(sys.modules); {statement}; import magnetar; late = magnetar.LateModule;"
        " print(json.dumps([name for name, module in sys.modules.items() if name not in before"
        " and not isinstance(module, late)]))"
    )
    return frozenset(
        json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    )


def third_party_of(statement: str) -> set[str]:
    """The top-level modules outside the standard library that a statement imports."""
    known = set(sys.stdlib_module_names) | {"magnetar"}
    found = {name.split(".")[0] for name in imported_by(statement)}
    return {name for name in found if name not in known and not name.startswith("_")}


WIRE = {"google", "google_crc32c", "cramjam", "cython_runtime", "mmh3", "mypy_extensions"}
HTTP_SERVER = {"anyio", "httptools", "python_multipart", "starlette", "typing_extensions", "uvicorn"}
# zstandard: httpx imports it where it is installed, as libraries of connectors do.
HTTP_CLIENT = {"anyio", "certifi", "h11", "httpcore", "httpx", "zstandard"}
GRPC = {"grpc", "grpc_tools", "opentelemetry", "typing_extensions"}  # what grpc itself imports where it is installed

MAY_IMPORT: dict[str, tuple[str, set[str]]] = {
    "magnetar --version": ("from magnetar.cli import main", {"click"}),
    "magnetar functions": ("from magnetar.cli.functions import functions", {"click"}),
    "the client": ("import magnetar.client.client", WIRE | {"uvloop"}),
    "a function's author": ("from magnetar import Function, Context, SerDe", set()),
    "the broker": (
        "from magnetar.cli.servers import broker_process, standalone; import uvloop",
        WIRE | HTTP_SERVER | {"click", "uvloop"},
    ),
    "the worker": (
        "from magnetar.cli.servers import worker; from magnetar.web.httpx_import import import_httpx;"
        " import_httpx(); from magnetar.worker import service; import uvloop",
        WIRE | HTTP_SERVER | HTTP_CLIENT | GRPC | {"click", "cloudpickle", "uvloop"},
    ),
    "what standalone's processes share": (
        "from magnetar.cli.servers import standalone; standalone.import_shared()",
        WIRE | HTTP_SERVER | HTTP_CLIENT | GRPC | {"click", "setproctitle", "uvloop"},
    ),
    "the state store": (
        "from magnetar.cli import main, servers; import magnetar.cli.servers.state_store, magnetar.state.server",
        {"click", "cython_runtime", "google"} | GRPC,
    ),
    "the zygote": ("from magnetar.runtime.process import zygote", WIRE | GRPC | {"setproctitle", "uvloop"}),
}
"""Process -> what it imports, and which libraries it may hold: each costs memory in every process that has it."""


@pytest.mark.parametrize("process", MAY_IMPORT)
def test_process_imports_only_what_it_may(process: str) -> None:
    statement, allowed = MAY_IMPORT[process]
    assert not third_party_of(statement) - allowed


WHEN_NEEDED = {
    "csv", "difflib", "idna", "importlib.metadata", "importlib.resources", "logging.config", "multiprocessing",
    "socketserver", "sysconfig", "zipfile", "zoneinfo",
    "google.protobuf.internal.python_message", "google.protobuf.text_format",
    "magnetar.client.encryption.encryption", "magnetar.client.schemas.avro_schema",
    "magnetar.client.schemas.primitives", "magnetar.instance.connectors.sink_settlement",
    "magnetar.security.authentication.authenticator",
    "magnetar.security.credentials.authentication_oauth2", "magnetar.security.credentials.plugins",
    "magnetar.security.server_tls", "magnetar.security.tls",
}  # fmt: skip
"""What servers without such settings, functions or mistakes do without: 5 MB, and 60 ms of each start."""
SERVERS = ("the broker", "the worker", "what standalone's processes share", "the state store", "the zygote")


@pytest.mark.parametrize("process", SERVERS)
def test_server_imports_when_it_is_needed(process: str) -> None:
    found = imported_by(MAY_IMPORT[process][0]) & WHEN_NEEDED
    assert not found
