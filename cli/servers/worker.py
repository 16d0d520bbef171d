"""``magnetar worker``: a functions worker alone, against a broker that runs already."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..failure import Failure
from ..settings import current
from .config_file import WORKER_KEYS, allowed_hosts_option, process_users_option
from .data_directory import DataDirectory
from .isolation import check_reach, isolated_users
from .lifetime import announce, check_port, die_with_parent, log_to_stderr, port_failure, run, until_stopped
from .server_file import read_server_file


@click.command()
@click.option("--data-dir", default="data/worker", show_default=True, metavar="DIR", help="For packages and logs.")
@click.option("--worker-port", type=int, help="Port of its REST interface (default: 6750, 0: a free one).")
@click.option("--worker-id", help="Unique in the cluster (default: host-port).")
@click.option("--host", help="Address to listen on and to tell others (default: 127.0.0.1).")
@allowed_hosts_option
@click.option("--service-url", metavar="URL", help="The broker; else as before the group.")
@click.option("--admin-url", metavar="URL", help="The broker's REST interface; else as before the group.")
@click.option(
    "--state-storage-service-url", "state_url", metavar="URL", help="The state store, bk://host:port (default: none)."
)
@click.option(
    "--config", "config_file", metavar="FILE", help="functions_worker.yml, or a file with its keys; flags win."
)
@process_users_option
@click.option("--ready-file", metavar="FILE", help="Write the address there as JSON once it serves; -: stdout.")
@click.option("--addresses-from-stdin", is_flag=True, hidden=True)
@click.pass_context
def worker(
    ctx: click.Context,
    /,
    config_file: str | None,
    ready_file: str | None,
    data_dir: str,
    addresses_from_stdin: bool,
    **flags: Any,
) -> None:
    """Run a functions worker alone, against a broker that runs already."""
    die_with_parent()
    log_to_stderr("worker")
    settings = current(ctx)
    values: dict[str, Any] = {"service_url": settings.service_url, "admin_url": settings.admin_url}
    values |= read_server_file(config_file, WORKER_KEYS, "worker")["worker"]
    values |= {name: value for name, value in flags.items() if value is not None}
    check_port(values.get("host", "127.0.0.1"), values.get("worker_port", 6750), "--worker-port")
    from ...runtime.process.forked import can_fork
    from ...runtime.process.zygote import fork_zygote
    from ...web.httpx_import import import_httpx

    users = isolated_users(values.get("process_users"))
    # Before this process has a thread, a loop or a locked directory; one of isolated instances is started by exec, as a
    # fork would have everything in this memory.
    zygote = fork_zygote() if can_fork() and not users else None
    directory = DataDirectory.open(Path(data_dir), is_passage=bool(users))
    check_reach(users, directory.path)
    import_httpx()
    from ...worker.assembly import make_runtime_manager
    from ...worker.config import WorkerConfig
    from ...worker.service import WorkerService

    if addresses_from_stdin:  # the supervisor tells them once it knows them: imports are done by then
        line = sys.stdin.readline()
        if not line:
            raise Failure("the supervisor ended before it told the broker's address")
        values |= json.loads(line)
    config = WorkerConfig(data_dir=directory.path, **values)

    async def serve(stop: asyncio.Event) -> None:
        service = WorkerService(config, partial(make_runtime_manager, zygote=zygote))
        try:
            try:
                await service.start()
            except OSError as exc:
                raise port_failure(exc, config.host, config.worker_port, "--worker-port") from exc
            announce({"workerUrl": service.worker_url, "pid": os.getpid()}, ready_file)
            await until_stopped(stop, service.wait_failed())
        finally:
            await service.stop()
            directory.close()

    run(serve)
