"""``magnetar standalone``: the broker in this process, which supervises state store and worker as its children."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import click

from .broker import broker_configs, broker_options, open_directory
from .config_file import STANDALONE_KEYS, process_users_option
from .isolation import isolated_users
from .lifetime import announce, check_port, die_with_parent, log_to_stderr, run, until_stopped
from .server_file import read_server_file
from .state_store import DEFAULT_STATE_PORT
from .supervisor import Addresses, Child, ChildSpec

WORKER_FOLDER = "worker"
STATE_FOLDER = "state"
DEFAULT_WORKER_PORT = 6750


@click.command()
@broker_options
@click.option("--worker-port", type=int, help="Port of the worker (default: 6750, 0: a free one).")
@process_users_option
@click.option("-nfw", "--no-functions-worker", is_flag=True, help="Run the broker only.")
@click.option("--state-port", type=int, help="Port of the state store (default: 4181, 0: a free one).")
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
    """Run broker, state store and worker on this machine, until SIGTERM or Ctrl-C."""
    die_with_parent()
    log_to_stderr("broker")
    in_file = read_server_file(config_file, STANDALONE_KEYS, "broker", "worker")
    config, storage_config = broker_configs(flags, in_file)
    port, state_port = flags["worker_port"], flags["state_port"]
    if port is None:
        port = in_file["worker"].get("worker_port", DEFAULT_WORKER_PORT)
    if state_port is None:
        state_port = in_file["state"].get("port", DEFAULT_STATE_PORT)
    has_state = not (no_functions_worker or no_stream_storage)
    used = (("--worker-port", port, not no_functions_worker), ("--state-port", state_port, has_state))
    for flag, number in [(flag, number) for flag, number, is_used in used if is_used]:
        check_port(config.host, number, flag)
    own = {**in_file["worker"], "host": config.host, "worker_port": port, "cluster": config.cluster}
    own |= {"allowed_hosts": config.allowed_hosts, "process_users": process_users or own.get("process_users", {})}
    is_isolated = not no_functions_worker and bool(isolated_users(own["process_users"]))
    more, way_to = (WORKER_FOLDER, STATE_FOLDER), WORKER_FOLDER if is_isolated else ""
    directory = open_directory(config, wipe=wipe_data, more_names=more, way_to=way_to)

    urls: dict[str, str] = {}
    worker = state = None
    if has_state:
        state = Child(state_spec(config.host, state_port, str(directory.path / STATE_FOLDER)))
    if not no_functions_worker:
        worker = Child(worker_spec(own, str(directory.path / WORKER_FOLDER), urls))

    children = [child for child in (state, worker) if child is not None]
    if children:
        import_shared()
    for child in children:  # first of all: this process has one thread
        child.fork()
    from .broker_process import BrokerProcess

    async def serve(stop: asyncio.Event) -> None:
        process = BrokerProcess(config, storage_config, directory)
        try:
            for child in children:  # they import their modules while the data is recovered here
                await child.spawn()
            await process.start(worker.url if worker else None)
            urls.update(service_url=process.broker_url, admin_url=process.web_url)
            addresses: Addresses = {"brokerServiceUrl": urls["service_url"], "webServiceUrl": urls["admin_url"]}
            if state is not None:
                await until_stopped(stop, state.ready())
                urls["state_url"] = addresses["stateStorageServiceUrl"] = state.url() or ""
            if worker is not None and not stop.is_set():
                await until_stopped(stop, worker.ready())
                addresses["workerUrl"] = worker.url() or ""
            if not stop.is_set():
                announce({**addresses, "pid": os.getpid()}, ready_file)
            await stop.wait()
        finally:
            for child in reversed(children):
                await child.stop()
            await process.stop()

    run(serve)


def import_shared() -> None:
    """Import what several of the processes need, before they are forked: they share its memory."""
    import uvloop  # noqa: F401

    from ...runtime.process import zygote  # noqa: F401
    from ...state import server  # noqa: F401
    from ...web import serve  # noqa: F401
    from ...web.httpx_import import import_httpx

    import_httpx()


def worker_spec(values: dict[str, Any], data_dir: str, urls: dict[str, str]) -> ChildSpec:
    """Return how the worker is started; a restarted one keeps the port of its first start."""

    def arguments(last: Addresses) -> Sequence[str]:
        port = str(last["workerUrl"]).rpartition(":")[2] if last else str(values["worker_port"])
        return (
            "worker", "--addresses-from-stdin", "--ready-file", "-",
            "--data-dir", data_dir, "--host", values["host"], "--worker-port", port, *own,
        )  # fmt: skip

    users = values.get("process_users")  # told before the worker forks anything
    own = ("--process-users", ",".join(f"{tenant}={user}" for tenant, user in users.items())) if users else ()
    rest = {name: value for name, value in values.items() if name not in ("host", "worker_port", "process_users")}
    return ChildSpec("worker", arguments, lambda: {**rest, **urls})


def state_spec(host: str, port: int, data_dir: str) -> ChildSpec:
    """Return how the state store is started; a restarted one keeps the port of its first start."""

    def arguments(last: Addresses) -> Sequence[str]:
        kept = str(last["stateStorageServiceUrl"]).rpartition(":")[2] if last else str(port)
        return ("state-store", "--ready-file", "-", "--data-dir", data_dir, "--host", host, "--state-port", kept)

    return ChildSpec("state store", arguments, dict)
