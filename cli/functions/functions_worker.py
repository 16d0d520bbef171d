"""``magnetar functions-worker``: inspect and manage workers and their instances."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from ..failure import Failure, Group
from ..output import Table, print_json, print_table, wants_table
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import Admin, Call, Subject, rest_command
from ..settings import current

WORKER_COLUMNS = ("workerId", "workerHostname", "port")
DRAIN_TIMEOUT_S = 60.0


@click.group("functions-worker", cls=Group, not_here=PULSAR_COMMANDS["functions-worker"])
def functions_worker() -> None:
    """Inspect and manage workers and their instances."""


def show_each(records: list[Any]) -> None:
    """Print records one by one, like Pulsar's tool, or as one array with ``-o json``."""
    if current(click.get_current_context()).output == "json":
        print_json(records)
    else:
        for record in records:
            print_json(record)


def show_workers(workers: list[dict[str, Any]]) -> None:
    """Show the workers of a cluster."""
    if wants_table(click.get_current_context()):
        print_table(Table(WORKER_COLUMNS, [[worker[column] for column in WORKER_COLUMNS] for worker in workers]))
    else:
        show_each(workers)


def show_assignments(assignments: dict[str, list[str]]) -> None:
    """Show the instances assigned to each worker."""
    ctx = click.get_current_context()
    if current(ctx).output == "json":
        print_json(assignments)
    elif wants_table(ctx):
        rows = [(worker, instance) for worker, found in assignments.items() for instance in found]
        print_table(Table(("worker", "instance"), rows))
    else:
        for worker, found in assignments.items():
            click.echo(f"{worker}    {json.dumps(found)}".replace('"', ""))


Subject(lambda: "/admin/v2/worker").commands(
    functions_worker,
    Call("get-cluster", "GET", "/cluster", "Show the workers.", show=show_workers),
    Call("get-cluster-leader", "GET", "/cluster/leader", "Show the leader of the workers."),
    Call("get-function-assignments", "GET", "/assignments", "Show the instances by worker.", show=show_assignments),
    Call(
        "rebalance", "PUT", "/rebalance", "Distribute the instances evenly among the workers.",
        "Rebalance command sent successfully",
    ),
)  # fmt: skip
Subject(lambda: "/admin/v2/worker-stats").commands(
    functions_worker,
    Call(
        "function-stats", "GET", "/functionsmetrics", "Show the counters of all instances on the contacted worker.",
        show=show_each,
    ),
    Call("monitoring-metrics", "GET", "/metrics", "Show the counters of the contacted worker."),
)  # fmt: skip


@rest_command(functions_worker)
@click.option("--worker-id", required=True, help="Id of the worker to drain, from get-cluster.")
def drain(rest: Admin, /, worker_id: str) -> str:
    """Move all instances off a worker and wait until it has none; it is assigned new ones only after a restart."""
    path = "/admin/v2/worker/leader/drain"
    deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
    rest.put(path, workerId=worker_id)
    while True:
        found = rest.get(path, workerId=worker_id)
        if found["status"] == "SUCCESS":
            break
        if found["status"] == "ERROR":
            raise Failure(f"draining {worker_id} failed: {found.get('lastError') or 'no reason given'}")
        if time.monotonic() > deadline_s:
            raise Failure(f"{worker_id} is still running instances after {DRAIN_TIMEOUT_S:g} s: check its log")
        time.sleep(0.1)
    return f"{worker_id} no longer runs any instances"
