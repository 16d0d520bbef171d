"""``magnetar``: the root command, and the central error handling.

A command's module is imported when the command runs: importing all of them takes a third of a second, too long for
`magnetar --version` and shell completion. Therefore the help texts of the root command are in the table, not in the
modules.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from .. import __version__
from ..compiled import variant
from ..errors import MagnetarError
from ..wire.printable import one_line
from .failure import Failure, Faults, Group, usage_line
from .global_flags import accept_global_flags, security_options
from .pulsar_commands import GROUPS
from .settings import find_settings

INTERRUPTED = 130  # 128 + SIGINT, the shell convention
DEBUG_VARIABLE = "MAGNETAR_DEBUG"


class Entry(NamedTuple):
    """Location of a command.

    Attributes:
        module: name of the module below `magnetar.cli`.
        attribute: name of the click command in it.
        summary: one-line description in the group's help.
    """

    module: str
    attribute: str
    summary: str


class LazyGroup(Group):
    """A click group made from a table instead of command objects."""

    def __init__(self, entries: Mapping[str, Entry], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.entries = dict(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if the name is unknown."""
        entry = self.entries.get(ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        command = getattr(importlib.import_module(f".{entry.module}", __package__), entry.attribute)
        assert isinstance(command, click.Command)
        if cmd_name not in (*SERVERS, *KEYS):
            accept_global_flags(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands for ``--help`` by section, without importing them."""
        width = max(map(len, self.entries))
        in_sections = {name for names in SECTIONS.values() for name in names}
        rest = [name for name in self.entries if name not in in_sections]
        for title, names in (*SECTIONS.items(), ("More", rest)):
            rows = [(name.ljust(width), self.entries[name].summary) for name in names if name in self.entries]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


COMMANDS = {
    "standalone": Entry("servers.standalone", "standalone", "Run a broker and a worker on this machine."),
    "broker": Entry("servers.broker", "broker", "Run a broker alone."),
    "worker": Entry("servers.worker", "worker", "Run a functions worker alone."),
    "state-store": Entry("servers.state_store", "state_store", "Run the state store alone."),
    "backup": Entry("backup.backup", "backup", "Back up the broker and the state store while they are running."),
    "restore": Entry("backup.backup", "restore", "Restore a data directory from a backup."),
    "init": Entry("init.init", "init", "Create a project with a function, its test and its config."),
    "demo": Entry("demo.demo", "demo", "Count the identifiers of Python's standard library with two functions."),
    "functions": Entry("functions.functions", "functions", "Create, update and monitor functions."),
    "functions-worker": Entry(
        "functions.functions_worker", "functions_worker", "Inspect and manage workers and their instances."
    ),
    "sources": Entry("connectors.connectors", "sources", "Create, update and monitor sources."),
    "sinks": Entry("connectors.connectors", "sinks", "Create, update and monitor sinks."),
    "packages": Entry("packages.packages", "packages", "Store code under names and versions."),
    "topics": Entry("topics.topics", "topics", "Create, inspect and change topics and their subscriptions."),
    "topicPolicies": Entry("topics.topic_policies", "topic_policies", "Show and change topic policies."),
    "subscriptions": Entry(
        "topics.subscriptions", "subscriptions", "Create, inspect and change subscriptions of a topic."
    ),
    "schemas": Entry("topics.schemas", "schemas", "Show, upload and delete the schemas of topics."),
    "namespaces": Entry("cluster.namespaces", "namespaces", "Create, inspect and change namespaces."),
    "tenants": Entry("cluster.tenants", "tenants", "Create, inspect and change tenants."),
    "tokens": Entry("security.tokens", "tokens", "Create keys and tokens, and inspect tokens."),
    "certificates": Entry("security.certificates", "certificates", "Create a CA and certificates to test TLS."),
    "clusters": Entry("cluster.clusters", "clusters", "Create, inspect and change clusters."),
    "brokers": Entry("cluster.clusters", "brokers", "Show broker settings, health and version."),
    "produce": Entry("messages.produce", "produce", "Send messages to a topic."),
    "consume": Entry("messages.consume", "consume", "Receive messages from a topic and print them."),
}


SERVERS = ("standalone", "demo", "broker", "worker", "state-store", "backup", "restore")
"""Commands that have their own flags for addresses, or do not need addresses."""
KEYS = ("tokens", "certificates")
"""Commands that do not contact a server."""
SECTIONS = {
    "Servers and data": SERVERS,
    "Functions and connectors": ("init", "functions", "sources", "sinks", "packages", "functions-worker"),
    "Messages": ("produce", "consume"),
    "Topics": ("topics", "subscriptions", "schemas", "topicPolicies"),
    "Cluster": ("namespaces", "tenants", "clusters", "brokers"),
    "Security": KEYS,
}
"""Sections of the help; commands without a section are listed last."""
ALIASES = {"source": "sources", "sink": "sinks"}
"""Alternative command names, also used by Pulsar; hidden in the help."""
NOT_HERE = (*GROUPS, "localrun", "proxy", "read", "websocket")
"""Commands of Pulsar or of later versions that this version rejects by name."""


@click.command(
    cls=LazyGroup,
    entries=COMMANDS,
    not_here=NOT_HERE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--admin-url", metavar="URL", help="REST address (default: $MAGNETAR_ADMIN_URL, client.yml or 127.0.0.1:8080)."
)
@click.option(
    "--service-url", metavar="URL", help="Broker address (default: $MAGNETAR_SERVICE_URL, client.yml or port 6650)."
)
@security_options
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print only JSON on standard output.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.version_option(f"{__version__} ({variant()})", "-v", "--version", prog_name="magnetar")
@click.pass_context
def root(
    ctx: click.Context,
    /,
    admin_url: str | None,
    service_url: str | None,
    output: str | None,
    debug: bool,
    **security: str | bool | None,
) -> None:
    """Serverless functions in Python on a bundled broker that speaks the Apache Pulsar protocol.

    `magnetar standalone` starts all servers on this machine; the other commands connect to them. Addresses and
    credentials can also follow a command: `magnetar functions list --admin-url URL`. Run `magnetar COMMAND --help` for
    details.
    """
    given = {name: value for name, value in security.items() if value is not None}
    if given and ctx.invoked_subcommand in SERVERS:
        raise Failure(
            f"authentication and TLS flags before `{ctx.invoked_subcommand}` have no effect: set"
            " brokerClientAuthenticationPlugin, brokerClientTrustCertsFilePath etc. in the --config file"
        )
    ctx.obj = find_settings(admin_url, service_url, output, given)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, print its errors, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" in given:  # accepted anywhere, as users append it after a failure
        given.remove("--debug")
        os.environ[DEBUG_VARIABLE] = "1"  # a supervised child shows its traceback too
    debug = DEBUG_VARIABLE in os.environ
    if not debug:  # hide the client's log: the error's own line is enough
        logging.getLogger("magnetar").addHandler(logging.NullHandler())
    try:
        code = root.main(given, prog_name="magnetar", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as exc:  # a group without a command: show its help
        click.echo(exc.message)
        return 0
    except (click.ClickException, MagnetarError) as exc:
        if debug:
            traceback.print_exc()
        return report(exc)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # `magnetar … | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as exc:  # noqa: BLE001  last resort: users never see a traceback
        if debug:
            traceback.print_exc()
        click.echo(f"magnetar: {describe(exc)}", err=True)
        return 1
    return code if isinstance(code, int) else 0


def describe(error: Exception) -> str:
    """Describe an unexpected error in one line."""
    if isinstance(error, OSError) and error.strerror:
        return one_line(f"{error.filename or 'system'}: {error.strerror}")
    if isinstance(error, UnicodeEncodeError):  # the shell passed bytes that are not valid text
        return f"{ascii(error.object)[:200]} is not valid UTF-8 at index {error.start}: use UTF-8"
    return one_line(f"{type(error).__name__}: {error} (rerun with --debug for the traceback)")


def report(error: click.ClickException | MagnetarError) -> int:
    """Print an error as one line (one for each of `Faults`) to standard error, and return the exit code."""
    if isinstance(error, Faults):
        for fault in error.lines:
            click.echo(f"magnetar: {one_line(fault)}", err=True)
        return error.exit_code
    if isinstance(error, click.UsageError):
        line, code = usage_line(error), error.exit_code
    elif isinstance(error, click.ClickException):
        line, code = one_line(error.format_message()), error.exit_code
    else:
        line, code = one_line(str(error)) or type(error).__name__, 1
    click.echo(f"magnetar: {line}", err=True)
    return code
