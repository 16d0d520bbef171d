"""``magnetar worker``: runs a functions worker that connects to a running broker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..failure import Failure
from ..settings import current
from .config_file import WORKER_KEYS, advertised_address_option, allowed_hosts_option, process_users_option
from .data_directory import DataDirectory
from .exposure import LOOPBACK, check_exposure, insecure_option, is_guarded, is_loopback, tell_exposure
from .isolation import check_reach, isolated_users
from .lifetime import announce, check_port, die_with_parent, importing, log_to_stderr, port_failure, run, until_stopped
from .server_file import Settings, read_server_file

if TYPE_CHECKING:
    from ...worker.config import WorkerConfig
DEFAULT_WORKER_PORT = 6750


def worker_config(in_file: Settings, values: dict[str, Any], data_dir: Path) -> WorkerConfig:
    """Return a worker's settings from its file, overridden by flags and its supervisor."""
    from ...security.authentication.settings import ServerSecurity
    from ...security.authorization.settings import AuthorizationSettings
    from ...security.credentials.client_security import TLS_URLS, ClientSecurity
    from ...security.server_tls_settings import ServerTls
    from ...state.limits import TLS_SCHEME
    from ...worker.config import WorkerConfig

    # As in Pulsar, the metrics of workers require authentication, and those of brokers do not.
    security = ServerSecurity.of({"authenticate_metrics": True, **in_file["security"], **values.pop("security", {})})
    authorization = AuthorizationSettings(**{**in_file["authorization"], **tuples(values.pop("authorization", {}))})
    client = {**in_file["client"], **values.pop("client_security", {})}
    urls = [str(values.get(name, "")) for name in ("service_url", "admin_url", "state_url")]
    if "worker_tls_port" in values:
        # As in Pulsar: with a TLS port, there is a plain one only if it is set explicitly.
        values.setdefault("worker_port", None)
    elif not any(url.startswith((*TLS_URLS, TLS_SCHEME)) for url in urls):
        for name in ("tls_hostname_verification", "tls_allow_insecure_connection"):
            client.pop(name, None)  # Pulsar's functions_worker.yml contains them without TLS, too
    client_security = ClientSecurity(**client)
    if values.pop("uses_tls", False) and not urls[0].startswith(TLS_URLS):
        raise Failure(f"useTls is true, but the broker address is {urls[0]!r}: use pulsar+ssl://host:port")
    return WorkerConfig(
        data_dir=data_dir,
        tls=ServerTls(**in_file["tls"]),
        security=security,
        authorization=authorization,
        client_security=client_security,
        **values,
    )


def settled_hosts(in_file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, str]:
    """Return a worker's listen address and advertised address.

    ``workerHostname`` is both, unless a flag or ``bindAddress`` sets the listen address. A loopback name, such as the
    one in Pulsar's file, is not advertised by a worker that listens on another address.
    """
    named = in_file.get("advertised_host", "")
    host = flags.get("host") or in_file.get("host") or named or LOOPBACK
    advertised = flags.get("advertised_host") or named
    if advertised == named and named and is_loopback(named) and not is_loopback(host):
        advertised = ""
    return {"host": host, "advertised_host": advertised}


def check_ports(host: str, values: Mapping[str, Any]) -> None:
    """Check that the ports in a worker's settings can be opened."""
    if "worker_tls_port" in values:
        check_port(host, values["worker_tls_port"], "workerPortTls")
    if "worker_tls_port" not in values or "worker_port" in values:
        check_port(host, values.get("worker_port", DEFAULT_WORKER_PORT), "--worker-port")


def main_port(config: WorkerConfig) -> tuple[int, str]:
    """Return a worker's main port and the name of its setting."""
    if config.worker_port is not None:
        return config.worker_port, "--worker-port"
    return config.worker_tls_port or 0, "workerPortTls"


def tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings received as JSON, with lists converted to tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


@click.command()
@click.option(
    "--data-dir", default="data/worker", show_default=True, metavar="DIR", help="Directory for packages and logs."
)
@click.option(
    "--worker-port",
    type=int,
    help="Port of the REST interface (default: 6750, or none with workerPortTls; 0: a free one).",
)
@click.option("--worker-id", help="Id of the worker, unique in the cluster (default: host-port).")
@click.option("--host", help="Address to listen on (default: workerHostname in the file, or 127.0.0.1).")
@advertised_address_option("advertised_host")
@insecure_option
@allowed_hosts_option
@click.option("--service-url", metavar="URL", help="Broker address (default: the global flag).")
@click.option("--admin-url", metavar="URL", help="Address of the broker's REST interface (default: the global flag).")
@click.option(
    "--state-storage-service-url",
    "state_url",
    metavar="URL",
    help="State store address, bk://host:port, or bk+ssl://host:port with TLS (default: none).",
)
@click.option(
    "--config", "config_file", metavar="FILE", help="functions_worker.yml, or a file with its keys; flags override it."
)
@process_users_option
@click.option("--ready-file", metavar="FILE", help="Write the address to this file as JSON when ready (-: stdout).")
@click.option("--addresses-from-stdin", is_flag=True, hidden=True)
@click.pass_context
def worker(
    ctx: click.Context,
    /,
    config_file: str | None,
    ready_file: str | None,
    data_dir: str,
    insecure: bool,
    addresses_from_stdin: bool,
    **flags: Any,
) -> None:
    """Run a functions worker that connects to a running broker."""
    is_supervised = die_with_parent()
    log_to_stderr("worker")
    settings = current(ctx)
    values: dict[str, Any] = {"service_url": settings.service_url, "admin_url": settings.admin_url}
    in_file = read_server_file(config_file, WORKER_KEYS, "worker")
    values |= in_file["worker"]
    guarded = is_guarded(in_file["security"], in_file["authorization"])
    given = {name: value for name, value in flags.items() if value is not None}
    values |= given | settled_hosts(in_file["worker"], given)
    host = values["host"]
    if not is_supervised:  # otherwise standalone has checked it
        check_exposure(host, insecure or guarded)
    check_ports(host, values)
    with importing():
        from ...runtime.process.forked import can_fork
        from ...runtime.process.zygote import fork_zygote
        from ...web.httpx_import import import_httpx

    users = isolated_users(values.get("process_users"))
    # Start the zygote before this process has threads, a loop or a locked directory. With isolated instances it is
    # started with exec, as a forked process would contain this process's memory.
    zygote = fork_zygote() if can_fork() and not users else None
    directory = DataDirectory.open(Path(data_dir), is_passage=bool(users))
    check_reach(users, directory.path)
    with importing():
        import_httpx()
        from ...worker.assembly import make_runtime_manager
        from ...worker.service import WorkerService

    if addresses_from_stdin:  # sent by the supervisor once known; imports are done by then
        line = sys.stdin.readline()
        if not line:
            raise Failure("the supervisor exited before it sent the broker address")
        values |= json.loads(line)
    config = worker_config(in_file, values, directory.path)

    async def serve(stop: asyncio.Event) -> None:
        service = WorkerService(config, partial(make_runtime_manager, zygote=zygote))
        try:
            try:
                await service.start()
            except OSError as exc:
                raise port_failure(exc, config.host, *main_port(config)) from exc
            if not is_supervised:
                tell_exposure(config.host, is_guarded=guarded)
            tls = {"workerUrlTls": service.worker_tls_url} if service.worker_tls_url else {}
            addresses: dict[str, str | int] = {"workerUrl": service.worker_url, **tls, "pid": os.getpid()}
            announce(addresses, ready_file, is_supervised=is_supervised)
            await until_stopped(stop, service.wait_failed())
        finally:
            await service.stop()
            directory.close()

    run(serve)
