"""``magnetar functions-worker``: which workers there are and what they run."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from ..failure import Failure
from ..lazy import Group
from ..output import Table, output_option, print_json, print_table, show_done, show_record, wants_table
from ..rest import Admin
from ..settings import current

WORKER_COLUMNS = ("workerId", "workerHostname", "port")
DRAIN_TIMEOUT_S = 60.0


@click.group("functions-worker", cls=Group)
def functions_worker() -> None:
    """Inspect the workers and their instances."""


def admin(ctx: click.Context) -> Admin:
    """Return the REST connection of a call."""
    return Admin(current(ctx).admin_url)


def show_each(ctx: click.Context, records: list[Any]) -> None:
    """Show records one after the other, as Pulsar's tool does; as one array with ``-o json``."""
    if current(ctx).output == "json":
        print_json(records)
    else:
        for record in records:
            print_json(record)


@functions_worker.command("get-cluster")
@output_option
@click.pass_context
def get_cluster(ctx: click.Context) -> None:
    """Show the workers."""
    with admin(ctx) as rest:
        workers = rest.get("/admin/v2/worker/cluster")
    if wants_table(ctx):
        print_table(Table(WORKER_COLUMNS, [[worker[column] for column in WORKER_COLUMNS] for worker in workers]))
    else:
        show_each(ctx, workers)


@functions_worker.command("get-cluster-leader")
@output_option
@click.pass_context
def get_cluster_leader(ctx: click.Context) -> None:
    """Show the leader."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get("/admin/v2/worker/cluster/leader"))


@functions_worker.command("get-function-assignments")
@output_option
@click.pass_context
def get_function_assignments(ctx: click.Context) -> None:
    """Show the assignments."""
    with admin(ctx) as rest:
        assignments: dict[str, list[str]] = rest.get("/admin/v2/worker/assignments")
    if current(ctx).output == "json":
        print_json(assignments)
    elif wants_table(ctx):
        rows = [(worker, instance) for worker, found in assignments.items() for instance in found]
        print_table(Table(("worker", "instance"), rows))
    else:
        for worker, found in assignments.items():
            click.echo(f"{worker}    {json.dumps(found)}".replace('"', ""))


@functions_worker.command("function-stats")
@output_option
@click.pass_context
def function_stats(ctx: click.Context) -> None:
    """Show the counters of all instances of the answering worker."""
    with admin(ctx) as rest:
        show_each(ctx, rest.get("/admin/v2/worker-stats/functionsmetrics"))


@functions_worker.command("monitoring-metrics")
@output_option
@click.pass_context
def monitoring_metrics(ctx: click.Context) -> None:
    """Show the counters of the answering worker."""
    with admin(ctx) as rest:
        print_json(rest.get("/admin/v2/worker-stats/metrics"))


@functions_worker.command()
@output_option
@click.pass_context
def rebalance(ctx: click.Context) -> None:
    """Spread the instances evenly over the workers."""
    with admin(ctx) as rest:
        rest.put("/admin/v2/worker/rebalance")
    show_done(ctx, "Rebalance command sent successfully")


@functions_worker.command()
@click.option("--worker-id", required=True, help="Id of the worker to drain, as get-cluster shows it.")
@output_option
@click.pass_context
def drain(ctx: click.Context, /, worker_id: str) -> None:
    """Move all instances away from a worker and wait until it runs none; it gets no new ones until it has left."""
    path = "/admin/v2/worker/leader/drain"
    deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
    with admin(ctx) as rest:
        rest.put(path, workerId=worker_id)
        while True:
            found = rest.get(path, workerId=worker_id)
            if found["status"] == "SUCCESS":
                break
            if found["status"] == "ERROR":
                raise Failure(f"draining {worker_id} failed: {found.get('lastError') or 'no reason given'}")
            if time.monotonic() > deadline_s:
                raise Failure(f"{worker_id} still runs something after {DRAIN_TIMEOUT_S:g} s; look at its log")
            time.sleep(0.1)
    show_done(ctx, f"{worker_id} runs nothing any more")
