"""``magnetar functions``: create, update, monitor and delete functions."""

from __future__ import annotations

import asyncio
import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from ...config.function_config import FUNCTION_FLAGS
from ...errors import CryptoError
from ...web.deployments import ROLLBACK_PARAMETER
from ...wire.printable import summary
from ..config_flags import build_config
from ..failure import Failure, Group
from ..instance_logs import log_options, print_log
from ..messages.encryption import private_key_option
from ..output import Table, wants_table
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import STARTED, STOPPED, Admin, Call, Names, Record, Subject, rest_command, segment
from ..settings import current
from .dead_letters import dead_letters
from .localrun import localrun
from .runs import runs
from .state import putstate, querystate
from .target import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    Target,
    complete_names,
    find_path,
    find_target,
    function_options,
    instance_options,
    target_options,
)
from .trigger import RUN_COLUMNS, run_cells, trigger
from .versions import rollback, versions
from .waiting import rollback_option, take_wait, wait_options, wait_until_up

COUNTERS = {
    "received": "numReceived",
    "processed": "numSuccessfullyProcessed",
    "user errors": "numUserExceptions",
    "system errors": "numSystemExceptions",
}
"""Columns of `functions status` and their status fields, for functions that run continuously."""
REMOTE_PREFIXES = ("http://", "https://", "file://", "function://", "source://", "sink://")

_CREATE_EXAMPLE = """\b
magnetar functions create --py exclamation.py --classname exclamation.process \\
    --inputs persistent://public/default/in --output persistent://public/default/out"""


@click.group(cls=Group, not_here=PULSAR_COMMANDS["functions"])
def functions() -> None:
    """Create, update and monitor functions."""


def package_part(package: str, flag: str = "--py") -> dict[str, tuple[str | None, str | bytes, str]]:
    """Return the request part that contains the code or its URL.

    Raises:
        Failure: the file is missing or unreadable.
    """
    if package.startswith(REMOTE_PREFIXES):  # the worker fetches it
        return {"url": (None, package, "text/plain")}
    path = Path(package)
    if path.is_dir():
        raise Failure(f"{flag} {package} is a directory: zip it (`cd {package} && zip -r ../package.zip .`)")
    try:
        content = path.read_bytes()
    except FileNotFoundError as exc:
        raise Failure(f"The specified python file does not exist: {package}") from exc
    except OSError as exc:
        raise Failure(f"The specified python file cannot be read: {package}: {exc.strerror}") from exc
    return {"data": (path.name, content, "application/octet-stream")}


def config_part(config: dict[str, Any]) -> dict[str, tuple[str | None, str | bytes, str]]:
    """Return the request part that contains the config."""
    return {"functionConfig": (None, json.dumps(config), "application/json")}


def prepare(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the config from file and flags."""
    fqfn, tenant, namespace, name = (flags.pop(flag) for flag in ("fqfn", "tenant", "namespace", "name"))
    config = build_config(FUNCTION_FLAGS, flags.pop("config_file"), flags)
    if name:
        config["name"] = name
    complete_names(config, fqfn, tenant, namespace)
    return config


@rest_command(functions, has_output=False, epilog=_CREATE_EXAMPLE)
@target_options
@function_options
@wait_options
def create(rest: Admin, /, **flags: Any) -> str:
    """Deploy a function, and wait until all its instances are running."""
    wait = take_wait(flags)
    config = prepare(flags)
    is_statement = config.get("sql") is not None
    if not config.get("className") and not is_statement:
        raise Failure("No Function Classname specified: use --classname module.Class or module.function")
    package = config.get("py")
    if not (package or is_statement or config.get("jar") or config.get("go") or config.get("functionType")):
        raise Failure("no code specified: add --py FILE (a .py, .zip or .whl file)")
    parts = config_part(config) | (package_part(str(package)) if package else {})
    path = _path(config)
    wait_until_up(rest, path, rest.deploy("POST", path, parts), wait)
    return "Created successfully"


@rest_command(functions, has_output=False)
@target_options
@function_options
@click.option("--update-auth-data", is_flag=True, help="Run it with your credentials from now on.")
@click.option("--keep-state", is_flag=True, help="Keep the state of the previous version, for rollback --with-state.")
@rollback_option
@wait_options
def update(rest: Admin, /, **flags: Any) -> str:
    """Update a function, and wait until all its instances are running; omitted options keep their values."""
    wait, rolls_back, keeps_state = take_wait(flags), flags.pop("rolls_back"), flags.pop("keep_state")
    options = {"updateAuthData": flags.pop("update_auth_data")}
    config = prepare(flags)
    package = config.get("py")
    parts = config_part(config) | (package_part(str(package)) if package else {})
    parts["updateOptions"] = (None, json.dumps(options), "application/json")
    path = _path(config)
    query = {ROLLBACK_PARAMETER: rolls_back or None, "keepState": keeps_state or None}
    version = rest.deploy("PUT", path, parts, **query)
    wait_until_up(rest, path, version, wait)
    return "Updated successfully"


def _path(config: dict[str, Any]) -> str:
    return Target(str(config["tenant"]), str(config["namespace"]), str(config["name"])).path


@rest_command(functions, "list")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True)
def list_functions(rest: Admin, /, tenant: str, namespace: str) -> Names | Record:
    """List the functions of a namespace, on a terminal with their states."""
    path = f"/admin/v3/functions/{segment(tenant)}/{segment(namespace)}"
    none = f"no functions in {tenant}/{namespace}"
    if not wants_table(click.get_current_context()):
        return Names(sorted(rest.get(path)), none)
    found = rest.get(path, states=True)
    if any(isinstance(one, str) for one in found):  # a worker of Apache Pulsar, which returns names only
        return Names(sorted(found), none)
    return Record(found, list_table, none)


def list_table(found: list[dict[str, Any]]) -> Table:
    """Return a table of functions, followed by the errors of those that are not running."""
    rows = [
        (one["name"], one["state"], f"{one['numRunning']} of {one['numInstances']}", one["processingGuarantees"])
        for one in found
    ]
    notes = [f"{one['name']}: {summary(one['error'])}" for one in found if one["error"]]
    return Table(("name", "state", "instances", "guarantee"), rows, "" if rows else "no functions", notes)


def status_table(status: dict[str, Any]) -> Table:
    """Return a function's status, one row per instance, followed by the last error of each instance."""
    rows, errors = [], []
    works_in_runs = any("run" in instance["status"] for instance in status.get("instances", []))
    for instance in status.get("instances", []):
        found = instance["status"]
        exceptions = [*found.get("latestUserExceptions", []), *found.get("latestSystemExceptions", [])]
        newest = max(exceptions, key=itemgetter("timestampMs"), default={"exceptionString": ""})
        error = found.get("error") or found.get("run", {}).get("reason") or newest["exceptionString"].strip()
        rows.append(
            (
                instance["instanceId"],
                "running" if found["running"] else "down",
                *(run_cells(found.get("run")) if works_in_runs else (found[name] for name in COUNTERS.values())),
                found["numRestarts"],
                found.get("workerId", ""),
            )
        )
        if error:
            errors.append(f"{instance['instanceId']}: {summary(error)}")
    title = f"{status['numRunning']} of {status['numInstances']} instances running"
    work = RUN_COLUMNS if works_in_runs else tuple(COUNTERS)
    return Table(("instance", "state", *work, "restarts", "worker"), rows, title, errors)


def stats_table(stats: dict[str, Any]) -> Table:
    """Return a function's statistics, one row per instance and one for the total."""
    fields = ("receivedTotal", "processedSuccessfullyTotal", "userExceptionsTotal", "systemExceptionsTotal")

    def row(name: object, record: dict[str, Any]) -> tuple[object, ...]:
        latency = record.get("avgProcessLatency")
        recent = record.get("1min", {}).get("receivedTotal")
        return (name, *(record[field] for field in fields), "" if latency is None else f"{latency:.3f}", recent)

    rows = [row(instance["instanceId"], instance["metrics"]) for instance in stats["instances"]]
    columns = ("instance", "received", "processed", "user errors", "system errors", "latency ms", "received, last min")
    return Table(columns, [*rows, row("all", stats)])


STATUS = Call(
    "status", "GET", "/status", "Show a function's status, counters and latest errors.",
    # A single instance's status is not shown as a table.
    show=lambda status: Record(status, status_table if "instances" in status else None),
)  # fmt: skip
Subject(lambda **target: find_target(**target).path, [target_options]).commands(
    functions,
    Call("delete", "DELETE", "", "Stop and delete a function.", "Deleted successfully"),
    Call("get", "GET", "", "Show a function's config."),
)
Subject(find_path, [instance_options]).commands(
    functions,
    STATUS,
    STATUS._replace(name="getstatus", hidden=True),
    Call(
        "stats", "GET", "/stats", "Show a function's counters and latency.",
        show=lambda stats: Record(stats, stats_table if "instances" in stats else None),
    ),
    Call(
        "start", "POST", "/start", "Start a stopped function.", "Started successfully",
        refusals=STARTED,
    ),
    Call(
        "stop", "POST", "/stop", "Stop a function; it keeps its position in its inputs.", "Stopped successfully",
        refusals=STOPPED,
    ),
    Call("restart", "POST", "/restart", "Restart a function.", "Restarted successfully"),
)  # fmt: skip


@rest_command(functions, has_output=False)
@instance_options
@log_options
@click.option(
    "--from-topic",
    is_flag=True,
    help="Read the function's log topic, including logs from removed workers.",
)
@private_key_option
def logs(
    rest: Admin,
    /,
    instance_id: int | None,
    tail: int,
    follow: bool,
    from_topic: bool,
    private_key: str | None,
    **target: str | None,
) -> None:
    """Print the logs of a function's instances: output of print and logging, and tracebacks."""
    if private_key is not None and not from_topic:
        raise Failure("--encryption-key-value requires --from-topic: log files are not encrypted")
    if from_topic:
        _print_topic_log(rest, instance_id, tail, follow, private_key, target)
    else:
        print_log(rest, find_path(instance_id, **target), tail, follow=follow)


def _print_topic_log(
    rest: Admin,
    instance_id: int | None,
    tail: int,
    follow: bool,
    private_key: str | None,
    target: dict[str, str | None],
) -> None:
    from .topic_logs import TopicLogs  # imports the client's libraries

    found = find_target(**target)
    topic = (rest.get(found.path) or {}).get("logTopic")
    if not topic:
        raise Failure(
            f"function {found.name} has no log topic: set one for future logs with `functions update --name"
            f" {found.name} --log-topic TOPIC`"
        )
    cluster = current(click.get_current_context())
    logs = TopicLogs(cluster, topic, f"{found.tenant}/{found.namespace}/{found.name}", instance_id, private_key)
    try:
        asyncio.run(logs.read(tail, click.echo, follow=follow))
    except CryptoError as error:
        raise Failure(f"{error}: add --encryption-key-value with the URI of the log topic's private key") from error


@rest_command(functions)
@target_options
@click.option("--destination-file", "--destinationFile", required=True, metavar="FILE", help="Destination file.")
@click.option(
    "--path", "package_path", metavar="PATH", help="Download the package at this path instead of a function's code."
)
def download(rest: Admin, /, destination_file: str, package_path: str | None, **target: str | None) -> str:
    """Download a function's code."""
    source = "/admin/v3/functions" if package_path is not None else find_target(**target).path
    with (
        rest.stream(f"{source}/download", {"path": package_path}) as pieces,
        Path(destination_file).open("wb") as file,
    ):
        for piece in pieces:
            file.write(piece)
    return "Downloaded successfully"


@rest_command(
    functions, "reset-cursor", epilog="\b\nmagnetar functions reset-cursor --name exclamation --message-id earliest"
)
@target_options
@click.option(
    "-t", "--time", "back", metavar="DURATION", help="Reset to the first message after this time ago, such as 10m."
)
@click.option(
    "-m", "--messageId", "--message-id", "message_id",
    help="Position: latest, earliest, ledger:entry or ledger:entry:partition.",
)  # fmt: skip
@click.option("--topic", help="Input topic to reset (default: all).")
def reset_cursor(
    rest: Admin, /, back: str | None, message_id: str | None, topic: str | None, **target: str | None
) -> str:
    """Reset a function to an earlier or later message of its inputs.

    This stops the instances, moves the cursors and restarts the instances. With EFFECTIVELY_ONCE, this is the only way
    to reprocess messages: after `topics reset-cursor` alone, they are redelivered but skipped as already processed.
    """
    from ..topics.subscriptions import parse_place  # imports the client's libraries

    place = parse_place(back, message_id)
    body: dict[str, Any] = {} if topic is None else {"topic": topic}
    body |= {"timestamp": place} if isinstance(place, int) else {"messageId": place}
    rest.post(f"{find_target(**target).path}/reset-cursor", body)
    return "Reset successfully"


functions.add_command(localrun)
functions.add_command(trigger)
functions.add_command(runs)
functions.add_command(querystate)
functions.add_command(putstate)
functions.add_command(versions)
functions.add_command(rollback)
functions.add_command(dead_letters)
