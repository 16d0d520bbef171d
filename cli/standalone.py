"""``magnetar standalone``: the broker in this process, which supervises the worker as its child."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from typing import Any

import click

from .failure import Failure
from .lifetime import announce, check_port, die_with_parent, run
from .logs import log_to_stderr
from .serve_broker import broker_configs, broker_options, open_directory
from .server_file import STANDALONE_KEYS, read_server_file
from .supervisor import Addresses, Child, ChildSpec

WORKER_FOLDER = "worker"
DEFAULT_WORKER_PORT = 6750


@click.command()
@broker_options
@click.option("--worker-port", type=int, help="Port of the worker (default: 6750, 0: a free one).")
@click.option("-nfw", "--no-functions-worker", is_flag=True, help="Run the broker only.")
@click.option("--state-port", type=int, hidden=True)
def standalone(
    config_file: str | None,
    wipe_data: bool,
    ready_file: str | None,
    worker_port: int | None,
    no_functions_worker: bool,
    state_port: int | None,
    **flags: Any,
) -> None:
    """Run broker and worker on this machine, until SIGTERM or Ctrl-C."""
    if state_port is not None:
        raise Failure("--state-port is refused: this version has no state store yet; leave the flag out")
    die_with_parent()
    log_to_stderr("broker")
    in_file = read_server_file(config_file, STANDALONE_KEYS)
    config, storage_config = broker_configs(flags, in_file)
    port = worker_port if worker_port is not None else in_file["worker"].get("worker_port", DEFAULT_WORKER_PORT)
    if not no_functions_worker:
        check_port(config.host, port, "--worker-port")
    directory = open_directory(config, wipe=wipe_data, more_names=(WORKER_FOLDER,))
    from .broker_process import BrokerProcess

    urls: dict[str, str] = {}
    worker = None
    if not no_functions_worker:
        own = {**in_file["worker"], "host": config.host, "worker_port": port, "cluster": config.cluster}
        worker = Child(worker_spec(own, str(directory.path / WORKER_FOLDER), urls))

    async def serve(stop: asyncio.Event) -> None:
        process = BrokerProcess(config, storage_config, directory)
        try:
            if worker is not None:
                await worker.spawn()
            await process.start(worker.url if worker else None)
            urls.update(service_url=process.broker_url, admin_url=process.web_url)
            addresses: Addresses = {"brokerServiceUrl": urls["service_url"], "webServiceUrl": urls["admin_url"]}
            if worker is not None:
                await first_of(worker.ready(), stop)
                addresses |= {"workerUrl": worker.addresses.get("workerUrl", "")}
            if not stop.is_set():
                announce({**addresses, "pid": os.getpid()}, ready_file)
            await stop.wait()
        finally:
            if worker is not None:
                await worker.stop()
            await process.stop()

    run(serve)


def worker_spec(values: dict[str, Any], data_dir: str, urls: dict[str, str]) -> ChildSpec:
    """Return how the worker is started; a restarted one keeps the port of its first start."""

    def arguments(last: Addresses) -> Sequence[str]:
        port = str(last["workerUrl"]).rpartition(":")[2] if last else str(values["worker_port"])
        return (
            "worker", "--addresses-from-stdin", "--ready-file", "-",
            "--data-dir", data_dir, "--host", values["host"], "--worker-port", port,
        )  # fmt: skip

    rest = {name: value for name, value in values.items() if name not in ("host", "worker_port")}
    return ChildSpec("worker", arguments, lambda: {**rest, **urls})


async def first_of(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Wait for the work, or for the order to stop, which cancels it."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    try:
        await working
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
