"""``magnetar state-store``: runs the table service, alone or as the second child of standalone."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...security.open_files import raise_limit
from .config_file import STATE_KEYS
from .data_directory import DataDirectory
from .exposure import check_exposure, insecure_option, tell_exposure
from .lifetime import STOP_S, announce, check_port, die_with_parent, log_to_stderr, port_failure
from .server_file import Settings, read_server_file

if TYPE_CHECKING:
    from ...security.server_tls_settings import ServerTls

DEFAULT_STATE_PORT = 4181


@click.command("state-store")
@click.option("--data-dir", default="data/state", show_default=True, metavar="DIR", help="Directory for the tables.")
@click.option("--state-port", "port", type=int, help="Port of the service (default: 4181, 0: a free one).")
@click.option("--host", help="Address to listen on (default: 127.0.0.1).")
@click.option(
    "--token-secret-key",
    "key_file",
    metavar="FILE",
    help="Require tokens that workers create with the key in this file (stateStorageTokenSecretKey).",
)
@insecure_option
@click.option(
    "--config", "config_file", metavar="FILE", help="Pulsar's .conf file, or YAML with its keys; flags override it."
)
@click.option("--ready-file", metavar="FILE", help="Write the address to this file as JSON when ready (-: stdout).")
def state_store(data_dir: str, insecure: bool, config_file: str | None, ready_file: str | None, **flags: Any) -> None:
    """Run the state store alone; workers connect to it with --state-storage-service-url."""
    is_supervised = die_with_parent()
    log_to_stderr("state store")
    in_file = read_server_file(config_file, STATE_KEYS)
    values = in_file["state"]
    values |= {name: value for name, value in flags.items() if value is not None}
    host, port = values.get("host", "127.0.0.1"), values.get("port", DEFAULT_STATE_PORT)
    key_file = values.get("key_file")
    from ...state.access import TableKey

    key = TableKey.read(key_file) if key_file else None
    tls = tls_of(in_file)
    is_guarded = key is not None or (tls is not None and tls.requires_client_certificate)
    if not is_supervised:  # otherwise standalone has checked it
        check_exposure(host, insecure or is_guarded)
    DataDirectory.check_free(Path(data_dir))
    check_port(host, port, "--state-port")
    # Block the signals before starting threads, which could otherwise receive them. There is no event loop here to
    # handle them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    directory = DataDirectory.open(Path(data_dir))
    from ...state.server import TableServer

    raise_limit()
    try:
        server = TableServer.start(directory.path, host, port, key, tls)
    except OSError as exc:
        raise port_failure(exc, host, port, "--state-port") from exc
    try:
        gc.collect()
        gc.freeze()
        if not is_supervised:
            tell_exposure(host, is_guarded=is_guarded)
        announce({"stateStorageServiceUrl": server.url, "pid": os.getpid()}, ready_file, is_supervised=is_supervised)
        signal.sigwait(STOP_SIGNALS)
        signal.alarm(int(STOP_S))  # exits even if stopping hangs
    finally:
        server.stop()
        directory.close()


def tls_of(in_file: Settings) -> ServerTls | None:
    """Return the TLS settings if the file contains a certificate or any other TLS key, or None."""
    if not in_file["tls"]:
        return None
    from ...security.server_tls_settings import ServerTls

    return ServerTls(**in_file["tls"])


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
