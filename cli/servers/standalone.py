"""``magnetar standalone``: runs the broker in this process, and the state store and worker as supervised children."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...broker.listeners import OWN_LISTENER, BindAddress
from ...security.local_token import ADDRESSES_FILE, STATE_KEY_FILE, TOKEN_FILE
from .broker import broker_configs, broker_options, check_hosts, open_directory
from .config_file import STANDALONE_KEYS, process_users_option
from .data_directory import DataDirectory
from .exposure import LOOPBACK, is_guarded, tell_exposure
from .isolation import isolated_users
from .lifetime import announce, check_port, die_with_parent, importing, log_to_stderr, run, until_stopped
from .local_token import close_with_token, write_addresses, write_token
from .server_file import Settings, read_server_file
from .state_store import DEFAULT_STATE_PORT
from .supervisor import Addresses, Child, ChildSpec

if TYPE_CHECKING:
    from ...broker.config import BrokerConfig
    from ...broker.storage.config import StorageConfig

WORKER_FOLDER = "worker"
STATE_FOLDER = "state"
DEFAULT_WORKER_PORT = 6750
FORWARD_KEY_BYTES = 32


@click.command()
@broker_options
@click.option("--worker-port", type=int, help="Port of the worker (default: 6750, 0: a free one).")
@process_users_option
@click.option("-nfw", "--no-functions-worker", is_flag=True, help="Run only the broker.")
@click.option("--state-port", type=int, help="Port of the state store (default: 4181, 0: a free one).")
@click.option(
    "--local-token",
    is_flag=True,
    help="Require the token in --data-dir from clients; commands on this machine read it automatically.",
)
@click.option("-nss", "--no-stream-storage", is_flag=True, help="Run without the state store.")
def standalone(
    config_file: str | None,
    wipe_data: bool,
    ready_file: str | None,
    no_functions_worker: bool,
    no_stream_storage: bool,
    process_users: dict[str, str] | None,
    **flags: Any,
) -> None:
    """Run a broker, a state store and a worker on this machine until SIGTERM or Ctrl-C."""
    die_with_parent()
    log_to_stderr("broker")
    in_file = read_server_file(config_file, STANDALONE_KEYS, "broker", "worker")
    token = close_with_token(in_file) if flags["local_token"] else None
    config, storage_config = own_broker_configs(flags, in_file, has_worker=not no_functions_worker)
    most_open, guarded = checked_exposure(config, in_file, is_insecure=flags["insecure"])
    has_state = not (no_functions_worker or no_stream_storage)
    port, state_port = ports_of(config, flags, in_file, has_worker=not no_functions_worker, has_state=has_state)
    if process_users:
        in_file["worker"]["process_users"] = process_users
    is_isolated = not no_functions_worker and bool(isolated_users(in_file["worker"].get("process_users")))
    directory = open_own_directory(config, wipe=wipe_data, is_isolated=is_isolated, token=token)
    state_key = state_key_of(config, in_file, directory)

    urls: dict[str, str] = {}
    worker = state = None
    forward_key = secrets.token_hex(FORWARD_KEY_BYTES) if config.security.enabled else ""
    if has_state:
        state = Child(state_spec(state_host(config), state_port, str(directory.path / STATE_FOLDER), state_key))
    if not no_functions_worker:
        own = worker_values(config, in_file, port, state_key, forward_key)
        worker = Child(worker_spec(own, str(directory.path / WORKER_FOLDER), urls))

    children = [child for child in (state, worker) if child is not None]
    fork_all(children)
    with importing():
        from .broker_process import BrokerProcess

    async def serve(stop: asyncio.Event) -> None:
        process = BrokerProcess(config, storage_config, directory, forward_key)
        try:
            for child in children:  # children import their modules while this process recovers the data
                await child.spawn()
            await process.start(worker.url if worker else None, state.url if state else None)
            urls.update(service_url=process.worker_broker_url, admin_url=process.web_url)
            addresses: Addresses = process.addresses
            if state is not None:
                await until_stopped(stop, state.ready())
                urls["state_url"] = addresses["stateStorageServiceUrl"] = state.url() or ""
            if worker is not None and not stop.is_set():
                await until_stopped(stop, worker.ready())
                addresses["workerUrl"] = worker.url() or ""
            if not stop.is_set():
                if token is not None:
                    write_addresses(directory.path, map(str, process.addresses.values()))
                tell_exposure(most_open, is_guarded=guarded)
                announce({**addresses, "pid": os.getpid()}, ready_file)
            await stop.wait()
        finally:
            for child in reversed(children):
                await child.stop()
            await process.stop()

    run(serve)


def open_own_directory(config: BrokerConfig, *, wipe: bool, is_isolated: bool, token: str | None) -> DataDirectory:
    """Lock the data directory, optionally empty it, and write the local token, if any."""
    more = (WORKER_FOLDER, STATE_FOLDER, STATE_KEY_FILE, TOKEN_FILE, ADDRESSES_FILE)
    directory = open_directory(config, wipe=wipe, more_names=more, way_to=WORKER_FOLDER if is_isolated else "")
    if token is not None:
        write_token(directory.path, token)
    return directory


def state_key_of(config: BrokerConfig, in_file: Settings, directory: DataDirectory) -> str | None:
    """Return the file with the state store's key; with authentication, create the key if missing."""
    given: str | None = in_file["worker"].get("state_key_file")
    if given is not None or not config.security.enabled:
        return given
    from ...state.access import TableKey

    file = directory.path / STATE_KEY_FILE
    TableKey.made_at(file)
    return str(file)


def worker_values(
    config: BrokerConfig, in_file: Settings, port: int, state_key: str | None, forward_key: str
) -> dict[str, Any]:
    """Return the worker's settings; they are sent through its pipe, as security settings contain keys."""
    shared: dict[str, Any] = {"host": config.host, "worker_port": port, "cluster": config.cluster}
    shared |= {"allowed_hosts": config.allowed_hosts, "security": dataclasses.asdict(config.security)}
    shared["security"]["forward_key"] = forward_key
    shared |= {"authorization": dataclasses.asdict(config.authorization), "client_security": in_file["client"]}
    return in_file["worker"] | shared | ({"state_key_file": state_key} if state_key else {})


def ports_of(
    config: BrokerConfig, flags: Mapping[str, Any], in_file: Settings, *, has_worker: bool, has_state: bool
) -> tuple[int, int]:
    """Return the ports of worker and state store, after checking that the required ones can be opened.

    Raises:
        DataDirectoryInUse: another server has locked the data directory, and so probably uses the ports.
        Failure: a port cannot be opened.
    """
    DataDirectory.check_free(config.data_dir)
    port = first_given(flags["worker_port"], in_file["worker"].get("worker_port"), DEFAULT_WORKER_PORT)
    state_port = first_given(flags["state_port"], in_file["state"].get("port"), DEFAULT_STATE_PORT)
    if has_worker:
        check_port(config.host, port, "--worker-port")
    if has_state:
        check_port(config.host, state_port, "--state-port")
    return port, state_port


def own_broker_configs(
    flags: dict[str, Any], in_file: Settings, *, has_worker: bool
) -> tuple[BrokerConfig, StorageConfig]:
    """Return the broker's settings, with a socket for its own worker, which may not reach advertised addresses."""
    config, storage_config = broker_configs(flags, in_file)
    if has_worker and (config.advertised_address or config.advertised_listeners):
        own = BindAddress(OWN_LISTENER, "pulsar", LOOPBACK, 0)
        config = dataclasses.replace(config, bind_addresses=(*config.bind_addresses, own))
    return config, storage_config


def checked_exposure(config: BrokerConfig, in_file: Settings, *, is_insecure: bool) -> tuple[str, bool]:
    """Return the most exposed address, and whether clients are authenticated; reject unauthenticated exposure."""
    guarded = is_guarded(in_file["security"], in_file["authorization"])
    return check_hosts(config, is_open=is_insecure or guarded), guarded


def state_host(config: BrokerConfig) -> str:
    """Return the state store's listen address; with authentication, only the worker can reach it."""
    return "127.0.0.1" if config.security.enabled else config.host


def first_given(*ports: int | None) -> int:
    """Return the first port that is not None."""
    return next(port for port in ports if port is not None)


def fork_all(children: Sequence[Child]) -> None:
    """Fork the children before this process has a second thread; the last one first, as it imports most."""
    if children:
        import_shared()
    for child in reversed(children):
        child.fork()


@importing()
def import_shared() -> None:
    """Import common modules before forking, so that the processes share memory."""
    import uvloop  # noqa: F401

    from ...runtime.process import zygote  # noqa: F401
    from ...security.authorization import broker_rules  # noqa: F401  used by broker and worker
    from ...state import server  # noqa: F401
    from ...web import authenticated, router, serve  # noqa: F401
    from ...web.httpx_import import import_httpx

    import_httpx()


def worker_spec(values: dict[str, Any], data_dir: str, urls: dict[str, str]) -> ChildSpec:
    """Return the worker's specification; a restarted worker keeps the port of its first start."""

    def arguments(last: Addresses) -> Sequence[str]:
        port = str(last["workerUrl"]).rpartition(":")[2] if last else str(values["worker_port"])
        return (
            "worker", "--addresses-from-stdin", "--ready-file", "-",
            "--data-dir", data_dir, "--host", values["host"], "--worker-port", port, *own,
        )  # fmt: skip

    users = values.get("process_users")  # passed on the command line, as the worker needs it before forking
    own = ("--process-users", ",".join(f"{tenant}={user}" for tenant, user in users.items())) if users else ()
    rest = {name: value for name, value in values.items() if name not in ("host", "worker_port", "process_users")}
    return ChildSpec("worker", arguments, lambda: {**rest, **urls})


def state_spec(host: str, port: int, data_dir: str, key_file: str | None) -> ChildSpec:
    """Return the state store's specification; a restarted store keeps the port of its first start."""

    def arguments(last: Addresses) -> Sequence[str]:
        kept = str(last["stateStorageServiceUrl"]).rpartition(":")[2] if last else str(port)
        key = ("--token-secret-key", key_file) if key_file else ()
        return ("state-store", "--ready-file", "-", "--data-dir", data_dir, "--host", host, "--state-port", kept, *key)

    return ChildSpec("state store", arguments, dict)
