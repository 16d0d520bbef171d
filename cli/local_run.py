"""`localrun`: its flags, and instances in the foreground until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..wire.printable import printable, summary
from .config_flags import QuietOption, refused_help
from .failure import Failure
from .settings import Settings

if TYPE_CHECKING:
    from ..runtime.local import LocalRun

_REFUSED = {
    "--client-auth-plugin --clientAuthPlugin": "authentication is not supported yet",
    "--client-auth-params --clientAuthParams": "authentication is not supported yet",
    "--tls-trust-cert-path --tls_trust_cert_path": "TLS is not supported yet",
    "--secrets-provider-classname": "secrets are given with --secrets or in the config file",
    "--secrets-provider-config": "secrets are given with --secrets or in the config file",
    "--metrics-port-start": "metrics of a local run are not served yet",
}
_REFUSED_SWITCHES = {
    "--use-tls --use_tls": "TLS is not supported yet",
    "--tls-allow-insecure --tls_allow_insecure": "TLS is not supported yet",
    "--hostname-verification-enabled --hostname_verification_enabled": "TLS is not supported yet",
}
"""Flags of Pulsar's that are refused by name, and why."""


def refused_flags() -> dict[str, str]:
    """Return the reason of each flag that is refused, by all its spellings."""
    return {flag: reason for names, reason in (_REFUSED | _REFUSED_SWITCHES).items() for flag in names.split()}


def local_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags of a local run."""
    for names, reason in _REFUSED.items():
        command = _refused(names, reason)(command)
    for names, reason in _REFUSED_SWITCHES.items():
        command = _refused(names, reason, is_flag=True)(command)
    for option in (
        click.option(
            "--state-storage-service-url", "--stateStorageServiceUrl", "state_storage_service_url", cls=QuietOption,
            metavar="URL",
            help="State store, bk://host:port; without one a source keeps no position.",
        ),
        click.option(
            "--broker-service-url", "--brokerServiceUrl", "broker_service_url", cls=QuietOption, metavar="URL",
            help="Address of the broker; else --service-url before the command.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _refused(names: str, reason: str, **attributes: Any) -> Callable[..., Any]:
    def refuse(_: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            raise Failure(f"{parameter.opts[0]} is refused: {reason}; leave it out")

    text = refused_help("", f"{reason}; leave it out")
    return click.option(*names.split(), cls=QuietOption, help=text, expose_value=False, callback=refuse, **attributes)


def service_url_of(given: str | None, settings: Settings) -> str:
    """Return the broker's address.

    Raises:
        Failure: it is none of the protocol.
    """
    url = given or settings.service_url
    if not url.startswith("pulsar://"):
        raise Failure(f"--broker-service-url {url!r} does not begin with pulsar://, the only protocol supported so far")
    return url.rstrip("/")


@dataclass(frozen=True)
class Addresses:
    """Where the services are that a local run needs; the state store may be none."""

    service_url: str
    admin_url: str
    state_url: str


def run_in_foreground(local: LocalRun, what: str) -> int:
    """Run instances until SIGINT or SIGTERM, with their logs on standard output and what is wrong on standard error.

    Args:
        local: what to run.
        what: names it, ``source public/default/lines``.

    Returns: the exit code: 1 if the only instance ended by itself, which is said.
    """
    prefixes = local.details.parallelism > 1

    def show(number: int, line: str) -> None:
        click.echo(printable(f"[{number}] {line}" if prefixes else line))

    def warn(number: int, trouble: str) -> None:
        click.echo(f"magnetar: instance {number}: {summary(trouble)}", err=True)

    def say(line: str) -> None:
        click.echo(printable(line), err=True)

    async def serve() -> str:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for which in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(which, stop.set)
        if local.is_direct:
            return await local.run_direct(stop, say, lambda trouble: warn(local.first_instance, trouble))
        await local.run(stop, show, warn)
        return ""

    count = local.details.parallelism
    instances = "1 instance" if count == 1 else f"{count} instances"
    click.echo(f"{what} runs here with {instances}, until Ctrl-C", err=True)
    reason = asyncio.run(serve())
    if reason:
        click.echo(f"magnetar: {what} ended: {printable(reason)}", err=True)
    return 1 if reason else 0
