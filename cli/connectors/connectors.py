"""``magnetar sources`` and ``magnetar sinks``: create, change, watch and remove connectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import click

from ...config.connector_config import BUILT_IN, SINK_FLAGS, SOURCE_FLAGS
from ..config_flags import Flags, build_config, config_options
from ..failure import Failure, Group
from ..functions.functions import package_part
from ..functions.target import DEFAULT_NAMESPACE, DEFAULT_TENANT
from ..output import Table
from ..rest import Admin, Call, Names, Record, Subject, rest_command, segment

_EXAMPLES = {
    "source": "magnetar sources create --name lines --source-type file \\\n"
    '    --destination-topic-name lines --source-config \'{"path": "/var/log/app"}\'',
    "sink": "magnetar sinks create --name archive --sink-type file --inputs lines \\\n"
    '    --sink-config \'{"path": "/data/archive"}\'',
}


def _make_group(kind: str, flags: Flags) -> click.Group:
    """Return the group of commands for sources or sinks.

    Args:
        kind: ``source`` or ``sink``.
        flags: of the config.
    """
    base, title = f"/admin/v3/{kind}s", kind.capitalize()

    @click.group(f"{kind}s", cls=Group, help=f"Create, change and watch {kind}s.")
    def group() -> None: ...

    def find(tenant: str | None, namespace: str | None, name: str | None) -> str:
        if not name:
            raise Failure(f"which {kind}? Give --name (and --tenant, --namespace)")
        return f"{base}/{segment(tenant or DEFAULT_TENANT)}/{segment(namespace or DEFAULT_NAMESPACE)}/{segment(name)}"

    def find_instance(instance_id: int | None, **target: str | None) -> str:
        path = find(**target)
        return path if instance_id is None else f"{path}/{instance_id}"

    def names(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--name", help=f"Name of the {kind}."),
            click.option("--namespace", help=f"Namespace of the {kind} (default: default)."),
            click.option("--tenant", help=f"Tenant of the {kind} (default: public)."),
        ):
            command = option(command)
        return command

    def one_instance(command: Callable[..., Any]) -> Callable[..., Any]:
        return names(click.option("--instance-id", type=int, help="Only this instance.")(command))

    def prepare(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the path and the parts of a request to create or update."""
        target = {flag: given.pop(flag) for flag in ("tenant", "namespace", "name")}
        config = build_config(flags, given.pop("config_file"), given)
        config |= {flag: value for flag, value in target.items() if value}
        path = find(config.get("tenant"), config.get("namespace"), config.get("name"))
        parts: dict[str, Any] = {f"{kind}Config": (None, json.dumps(config), "application/json")}
        archive = str(config.get("archive") or "")
        if archive and not archive.startswith(BUILT_IN):
            parts |= package_part(archive, "--archive")
        elif transform := str(config.get("transformFunction") or ""):
            parts |= package_part(transform, "--transform-function")
        return path, parts

    options = config_options(flags, f"--{kind}-config-file", f"--{kind}ConfigFile")
    attributes: dict[str, Any] = {"has_output": False}

    @rest_command(group, epilog="\b\n" + _EXAMPLES[kind], help=f"Deploy a {kind}.", **attributes)
    @names
    @options
    def create(rest: Admin, /, **given: Any) -> str:
        path, parts = prepare(given)
        rest.send_parts("POST", path, parts)
        return "Created successfully"

    @rest_command(group, help=f"Change a {kind}; options that are not given stay unchanged.", **attributes)
    @names
    @options
    def update(rest: Admin, /, **given: Any) -> str:
        path, parts = prepare(given)
        parts["updateOptions"] = (None, "{}", "application/json")
        rest.send_parts("PUT", path, parts)
        return "Updated successfully"

    @rest_command(group, "list", help=f"List the {kind}s of a namespace.")
    @click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
    @click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True)
    def list_all(rest: Admin, /, tenant: str, namespace: str) -> Names:
        return Names(sorted(rest.get(f"{base}/{segment(tenant)}/{segment(namespace)}")))

    @rest_command(group, f"available-{kind}s", help=f"List the {kind}s that are installed.")
    def list_available(rest: Admin, /) -> Record:
        return Record(rest.get(f"{base}/builtin{kind}s"), _available_table)

    @rest_command(group, "config-definition", help=f"Show the fields of an installed {kind}.")
    @click.argument("name")
    def config_definition(rest: Admin, /, name: str) -> Record:
        return Record(rest.get(f"{base}/builtin{kind}s/{segment(name)}/configdefinition"), _fields_table)

    Subject(lambda **target: find(**target), [names]).commands(
        group,
        Call("delete", "DELETE", "", f"Stop a {kind} and remove it.", "Deleted successfully"),
        Call("get", "GET", "", f"Show a {kind}'s config."),
    )
    Subject(find_instance, [one_instance]).commands(
        group,
        Call(
            "status", "GET", "/status", f"Show a {kind}'s status: whether it runs, its counters, its last errors.",
            show=lambda status: Record(status, _status_table if "instances" in status else None),
        ),
        Call("start", "POST", "/start", f"Start a stopped {kind}.", "Started successfully"),
        Call("stop", "POST", "/stop", f"Stop a {kind}; it keeps its place.", "Stopped successfully"),
        Call("restart", "POST", "/restart", f"Stop and start a {kind}.", "Restarted successfully"),
    )  # fmt: skip
    Subject(lambda: base, []).commands(
        group, Call("reload", "POST", f"/reloadBuiltIn{title}s", f"Look for installed {kind}s anew.", "Reloaded")
    )
    return group


def _available_table(found: list[dict[str, str]]) -> Table:
    rows = [(one["name"], one["description"], one.get("extra", ""), one.get("notVerified", "")) for one in found]
    return Table(("name", "description", "extra", "not verified"), rows)


def _fields_table(fields: list[dict[str, Any]]) -> Table:
    rows = []
    for field in fields:
        about = field["attributes"]
        default = "required" if about["required"] else json.dumps(about["defaultValue"])
        rows.append((field["fieldName"], field["typeName"], default, about["help"]))
    return Table(("field", "type", "default", "meaning"), rows)


def _status_table(status: dict[str, Any]) -> Table:
    rows, errors = [], []
    for instance in status["instances"]:
        found = instance["status"]
        latest = [found[name] for name in found if name.startswith("latest")]
        newest = max((one for some in latest for one in some), key=itemgetter("timestampMs"), default=None)
        error = found["error"] or (newest["exceptionString"].strip() if newest else "")
        counts = {name: count for name, count in found.items() if name.startswith("num") and name != "numRestarts"}
        failed = sum(count for name, count in counts.items() if name.endswith("Exceptions"))
        read = counts.get("numReadFromPulsar", counts.get("numReceivedFromSource"))
        written = counts.get("numWrittenToSink", counts.get("numWritten"))
        state = "running" if found["running"] else "down"
        rows.append((instance["instanceId"], state, read, written, failed, found["numRestarts"], found["workerId"]))
        if error:
            errors.append(f"{instance['instanceId']}: {error.splitlines()[-1]}")
    title = f"{status['numRunning']} of {status['numInstances']} instances running"
    return Table(("instance", "state", "read", "written", "errors", "restarts", "worker"), rows, title, errors)


sources = _make_group("source", SOURCE_FLAGS)
sinks = _make_group("sink", SINK_FLAGS)
