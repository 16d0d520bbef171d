"""`localrun`: its flags, and instances in the foreground until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..security.credentials.client_security import ClientSecurity
from ..wire.printable import printable, summary
from .config_flags import QuietOption
from .failure import Failure
from .global_flags import keep_security
from .settings import Settings

if TYPE_CHECKING:
    from ..runtime.local import LocalRun, ReadMetrics

_SECURITY = (
    ("auth_plugin", "--client-auth-plugin --clientAuthPlugin --auth-plugin", "NAME",
     "Authentication plugin for the broker (default: the global --auth-plugin)."),
    ("auth_params", "--client-auth-params --clientAuthParams --auth-params", "TEXT",
     "Parameters of the plugin (default: the global --auth-params)."),
    ("tls_trust_certs_file", "--tls-trust-cert-path --tls_trust_cert_path --tls-trust-certs-file", "FILE",
     "Trusted certificate authorities, a PEM file (default: the system's)."),
)  # fmt: skip
_SECURITY_SWITCHES = (
    ("tls_allow_insecure_connection",
     "--tls-allow-insecure --tls_allow_insecure --tls-allow-insecure-connection",
     "Accept any certificate; for testing only."),
    ("tls_hostname_verification", "--hostname-verification-enabled --hostname_verification_enabled",
     "Verify the host name in the broker's certificate; on by default."),
)  # fmt: skip
"""Name in `ClientSecurity`, flags and help: Pulsar's flags, and the equivalent global ones."""


def local_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a local run to a command."""
    command = click.option(
        "--use-tls", "--use_tls", "use_tls", cls=QuietOption, is_flag=True,
        help="Require a broker address with TLS, pulsar+ssl://.",
    )(command)  # fmt: skip
    for name, flags, text in reversed(_SECURITY_SWITCHES):
        command = _security(name, flags, text, is_flag=True, default=None)(command)
    for name, flags, metavar, text in reversed(_SECURITY):
        command = _security(name, flags, text, metavar=metavar)(command)
    for option in (
        click.option(
            "--metrics-port-start", "metrics_port", metavar="PORT", type=click.IntRange(0, 65535),
            help="Serve Prometheus metrics under /metrics on this port of 127.0.0.1. Process instances use"
                " consecutive ports starting with this one. 0: free ports.",
        ),
        click.option(
            "--secrets-provider-config", "secrets_config", metavar="JSON", default="",
            help="Configuration of the secrets provider.",
        ),
        click.option(
            "--secrets-provider-classname", "secrets_provider", metavar="CLASS", default="",
            help="Class that resolves secrets, such as module.Class (default: the built-in providers named in their"
                " entries).",
        ),
        click.option(
            "--state-storage-service-url", "--stateStorageServiceUrl", "state_storage_service_url", cls=QuietOption,
            metavar="URL",
            help="State store, bk://host:port or bk+ssl://host:port (default: the one announced by the broker).",
        ),
        click.option(
            "--broker-service-url", "--brokerServiceUrl", "broker_service_url", cls=QuietOption, metavar="URL",
            help="Address of the broker (default: the global --service-url).",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _security(name: str, flags: str, text: str, **attributes: Any) -> Callable[..., Any]:
    keep = partial(keep_security, name)
    return click.option(*flags.split(), cls=QuietOption, help=text, expose_value=False, callback=keep, **attributes)


def service_url_of(given: str | None, settings: Settings, use_tls: bool) -> str:
    """Return the broker's address.

    Raises:
        Failure: the address has an unsupported scheme, or lacks TLS although it is required.
    """
    url = given or settings.service_url
    if not url.startswith(("pulsar://", "pulsar+ssl://")):
        raise Failure(f"invalid --broker-service-url {url!r}: expected pulsar:// or pulsar+ssl://")
    if use_tls and not url.startswith("pulsar+ssl://"):
        raise Failure(f"--use-tls requires an address with TLS, not {url}: use --broker-service-url pulsar+ssl://…")
    return url.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Settings of a local run other than code and config.

    Attributes:
        service_url: address of the broker.
        admin_url: address of the broker's REST interface.
        state_url: URL of the state store; empty for none.
        secrets_provider: class that resolves secrets; empty for the default one.
        secrets_config: configuration of the secrets provider as JSON; empty for none.
        metrics_port: first port for metrics; 0 for free ports, None for no metrics.
        security: credentials and TLS settings for the broker and its REST interface.
    """

    service_url: str
    admin_url: str
    state_url: str = ""
    secrets_provider: str = ""
    secrets_config: str = ""
    metrics_port: int | None = None
    security: ClientSecurity = field(default_factory=ClientSecurity)


def take_surroundings(given: dict[str, Any], settings: Settings) -> Surroundings:
    """Remove the values of `local_run_options` from a command's flags and return them.

    Raises:
        Failure: one of them is invalid.
    """
    provider, config = given.pop("secrets_provider"), given.pop("secrets_config")
    if config and not provider:
        raise Failure("--secrets-provider-config requires --secrets-provider-classname")
    if config and not _is_object(config):  # not shown, as it may contain a password
        raise Failure(
            '--secrets-provider-config is not a JSON object: expected, for example, \'{"path": "/run/secrets"}\''
        )
    service_url = service_url_of(given.pop("broker_service_url"), settings, given.pop("use_tls"))
    admin_url = (given.pop("web_service_url", None) or settings.admin_url).rstrip("/")
    around = replace(settings, service_url=service_url, admin_url=admin_url)
    from ..state.access import has_tls

    state_url = given.pop("state_storage_service_url") or ""
    return Surroundings(
        service_url=service_url,
        admin_url=admin_url,
        state_url=state_url,
        secrets_provider=provider,
        secrets_config=config,
        metrics_port=given.pop("metrics_port"),
        security=around.security if has_tls(state_url) else around.credentials.security,
    )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def run_in_foreground(local: LocalRun, what: str, metrics_port: int | None) -> int:
    """Run instances until SIGINT or SIGTERM, with logs on standard output and errors on standard error.

    Args:
        local: the instances to run.
        what: their description, such as ``source public/default/lines``.
        metrics_port: as in `Surroundings`.

    Returns: the exit code: 1, with a message, if the only instance ended unexpectedly.

    Raises:
        Failure: a metrics port is in use.
    """
    count = local.details.parallelism
    instances = "1 instance" if count == 1 else f"{count} instances"

    def show(number: int, line: str) -> None:
        click.echo(printable(f"[{number}] {line}" if count > 1 else line))

    def warn(number: int, trouble: str) -> None:
        click.echo(f"magnetar: instance {number}: {summary(trouble)}", err=True)

    def say(line: str) -> None:
        click.echo(printable(line), err=True)

    async def serve() -> str:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for which in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(which, stop.set)
        async with AsyncExitStack() as stack:
            offer: Callable[[ReadMetrics], None] = _ignore
            line = ""
            if metrics_port is not None:
                from .local_metrics import LocalMetrics  # imports a web server's libraries

                metrics = LocalMetrics(local)
                stack.push_async_callback(metrics.close)
                offer, line = metrics.offer, await metrics.open(metrics_port)
            say(f"running {what} with {instances}, press Ctrl-C to stop")
            if line:
                say(line)
            if local.is_direct:
                return await local.run_direct(stop, say, lambda reason: warn(local.first_instance, reason), offer)
            await local.run(stop, show, warn, offer)
        return ""

    reason = asyncio.run(serve())
    if reason:
        click.echo(f"magnetar: {what} ended: {printable(reason)}", err=True)
    return 1 if reason else 0


def _ignore(_: object) -> None:
    pass
