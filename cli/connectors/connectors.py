"""``magnetar sources`` and ``magnetar sinks``: create, update, monitor and delete connectors, or run them locally."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from ...config.connector_config import SINK_FLAGS, SOURCE_FLAGS
from ...web.deployments import ROLLBACK_PARAMETER
from ...wire.topic_name import parse_topic_name
from ..config_flags import Flags
from ..failure import Failure, Group
from ..functions.dead_letters import Writer, dead_letter_commands
from ..functions.target import DEFAULT_NAMESPACE, DEFAULT_TENANT
from ..functions.versions import roll_back, to_version_option, versions_table
from ..functions.waiting import rollback_option, take_wait, wait_options, wait_until_up
from ..instance_logs import log_options, print_log
from ..local_run import local_run_options, run_in_foreground, take_surroundings
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import STARTED, STOPPED, Admin, Call, Names, Record, Subject, rest_command, segment
from ..settings import current
from .tables import available_table, fields_table, status_table
from .target import Kind

_EXAMPLES = {
    "source": "magnetar sources create --name lines --source-type file \\\n"
    '    --destination-topic-name lines --source-config \'{"path": "/var/log/app", "tail": true}\'',
    "sink": "magnetar sinks create --name archive --sink-type file --inputs lines \\\n"
    '    --sink-config \'{"path": "/data/archive", "format": "lines"}\'',
}


def _make_group(name: str, flags: Flags) -> click.Group:
    """Return the command group for sources or sinks.

    Args:
        name: ``source`` or ``sink``.
        flags: flags for the config.
    """
    group = Group(f"{name}s", not_here=PULSAR_COMMANDS[f"{name}s"], help=f"Create, update and monitor {name}s.")
    kind = Kind(name, flags)
    _add_deployment(group, kind)
    _add_local_run(group, kind)
    _add_lists(group, kind)
    _add_control(group, kind)
    if name == "sink":
        _add_dead_letters(group, kind)
    return group


def _add_deployment(group: click.Group, kind: Kind) -> None:
    name = kind.name
    attributes: dict[str, Any] = {"has_output": False}

    @rest_command(
        group, epilog="\b\n" + _EXAMPLES[name], help=f"Deploy a {name}, and wait until it is running.", **attributes
    )
    @kind.names
    @kind.options
    @wait_options
    def create(rest: Admin, /, **given: Any) -> str:
        wait = take_wait(given)
        is_named = bool(given["name"])
        config = kind.config(given, is_new=True)
        if not config.get("archive") and not config.get(f"{name}Type"):
            raise Failure(
                f"no code specified: add --{name}-type NAME (`magnetar {name}s available-{name}s` lists them) or"
                " --archive FILE (a .py, .zip or .whl file)"
            )
        path, parts = kind.request(config)
        version = rest.deploy("POST", path, parts)
        if not is_named:
            click.echo(f"name of the {name}: {config['name']}", err=True)
        wait_until_up(rest, path, version, wait)
        return "Created successfully"

    @rest_command(group, help=f"Update a {name}; omitted options keep their values.", **attributes)
    @kind.names
    @kind.options
    @click.option("--update-auth-data", is_flag=True, help="Run it with your credentials from now on.")
    @rollback_option
    @wait_options
    def update(rest: Admin, /, update_auth_data: bool, rolls_back: bool, **given: Any) -> str:
        wait = take_wait(given)
        path, parts = kind.request(kind.config(given, is_new=False))
        parts["updateOptions"] = (None, json.dumps({"updateAuthData": update_auth_data}), "application/json")
        version = rest.deploy("PUT", path, parts, **{ROLLBACK_PARAMETER: rolls_back or None})
        wait_until_up(rest, path, version, wait)
        return "Updated successfully"


def _add_local_run(group: click.Group, kind: Kind) -> None:
    @group.command("localrun", help=f"Run a {kind.name} on this machine, in the foreground, without a worker.")
    @kind.names
    @kind.options
    @local_run_options
    @click.pass_context
    def localrun(ctx: click.Context, /, **given: Any) -> None:
        from ..local_surroundings import connected
        from .local import local_connector  # imports the worker's libraries

        surroundings = take_surroundings(given, current(ctx))
        local = local_connector(kind.name, kind.config(given, is_new=True), surroundings)
        details = local.details
        what = f"{kind.name} {details.tenant}/{details.namespace}/{details.name}"
        run_in_foreground(connected(local), what, surroundings.metrics_port)


def _add_dead_letters(group: click.Group, kind: Kind) -> None:
    def full_name(tenant: str | None, namespace: str | None, name: str | None) -> str:
        return f"{tenant or DEFAULT_TENANT}/{namespace or DEFAULT_NAMESPACE}/{name}"

    def topics(rest: Admin, **target: str | None) -> Sequence[str]:
        """Return the dead-letter topic in the config, or those of all inputs."""
        config = rest.get(kind.path(**target)) or {}
        if topic := config.get("deadLetterTopic"):
            return (topic,)
        specs: dict[str, Any] = config.get("inputSpecs") or {}
        if any((spec or {}).get("isRegexPattern") for spec in specs.values()) or config.get("topicsPattern"):
            raise Failure(
                f"{kind.name} {target['name']} reads topics by pattern, and each topic has its own dead-letter topic:"
                f" read it with `consume TOPIC-{target['name']}-DLQ`, or set --dead-letter-topic"
            )
        inputs = sorted({*specs, *(config.get("inputs") or ())})
        return [f"{parse_topic_name(topic).base.text}-{target['name']}-DLQ" for topic in inputs]

    group.add_command(dead_letter_commands(Writer(kind.name, kind.names, full_name, topics)))


def _add_lists(group: click.Group, kind: Kind) -> None:
    name, base = kind.name, kind.base

    @rest_command(group, "list", help=f"List the {name}s of a namespace.")
    @click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
    @click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True)
    def list_all(rest: Admin, /, tenant: str, namespace: str) -> Names:
        names = sorted(rest.get(f"{base}/{segment(tenant)}/{segment(namespace)}"))
        return Names(names, f"no {name}s in {tenant}/{namespace}")

    @rest_command(group, f"available-{name}s", help=f"List the installed {name}s.")
    def list_available(rest: Admin, /) -> Record:
        return Record(rest.get(f"{base}/builtin{name}s"), available_table, f"no {name}s are installed")

    @rest_command(group, "config-definition", help=f"Show the fields of an installed {name}.")
    @click.argument("connector", metavar="NAME")
    def config_definition(rest: Admin, /, connector: str) -> Record:
        return Record(rest.get(f"{base}/builtin{name}s/{segment(connector)}/configdefinition"), fields_table)

    reload = Call(
        "reload", "POST", f"/reloadBuiltIn{name.capitalize()}s", f"Reload the list of installed {name}s.", "Reloaded"
    )
    Subject(lambda: base, []).commands(group, reload)


def _add_control(group: click.Group, kind: Kind) -> None:
    name = kind.name
    status = Call(
        "status", "GET", "/status", f"Show a {name}'s status, counters and latest errors.",
        show=lambda found: Record(found, status_table if "instances" in found else None),
    )  # fmt: skip
    Subject(kind.path, [kind.names]).commands(
        group,
        Call("delete", "DELETE", "", f"Stop and delete a {name}.", "Deleted successfully"),
        Call("get", "GET", "", f"Show a {name}'s config; secrets are hidden."),
        Call(
            "versions",
            "GET",
            "/versions",
            f"List the deployed versions of a {name}, newest first.",
            show=lambda found: Record(found, versions_table),
        ),
    )
    Subject(kind.instance_path, [kind.instances]).commands(
        group,
        status,
        status._replace(name="getstatus", hidden=True),
        Call("start", "POST", "/start", f"Start a stopped {name}.", "Started successfully", refusals=STARTED),
        Call(
            "stop",
            "POST",
            "/stop",
            f"Stop a {name}; it resumes at its last position when started.",
            "Stopped successfully",
            refusals=STOPPED,
        ),
        Call("restart", "POST", "/restart", f"Restart a {name}.", "Restarted successfully"),
    )

    @rest_command(group, has_output=False, help=f"Redeploy an earlier version of a {name}, as a new version.")
    @kind.names
    @to_version_option(f"{name}s versions")
    @wait_options
    def rollback(rest: Admin, /, to_version: int | None, **given: Any) -> str:
        wait = take_wait(given)
        return roll_back(rest, kind.path(**given), to_version, wait)

    @rest_command(group, has_output=False, help=f"Print the logs of a {name}'s instances.")
    @kind.instances
    @log_options
    def logs(rest: Admin, /, instance_id: int | None, tail: int, follow: bool, **target: str | None) -> None:
        print_log(rest, kind.instance_path(instance_id, **target), tail, follow=follow)


sources = _make_group("source", SOURCE_FLAGS)
sinks = _make_group("sink", SINK_FLAGS)
