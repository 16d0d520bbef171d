"""``magnetar functions trigger``: send one message through a function, or run a Spark function."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from ..failure import Failure
from ..output import print_json, wants_table
from ..rest import Admin, rest_command
from ..settings import current
from .schema_type import SCHEMA_TYPES, as_message
from .target import Target, find_target, target_options

NO_OUTPUT_HEADER = "Magnetar-No-Output"
"""Response header with the reason why there is no output."""
POLL_S = 0.2
LINE_PERIOD_S = 1.0
"""Minimum interval between progress lines of a stage, in seconds, if the output is not a terminal."""
REQUEST_AGAIN_S = 3.0
"""Interval, in seconds, at which a run unknown to all workers is requested again under its id: its worker may have
died.
"""
LOST_AFTER_S = 60.0
"""How long a run may be unknown to all workers, in seconds; longer than a worker failover or a broker restart."""
ENDED = ("done", "failed", "cancelled")
Run = dict[str, Any]
_Show = Callable[[Run], None]


@rest_command(None)
@target_options
@click.option("--trigger-value", "--triggerValue", help="Value of the message.")
@click.option("--trigger-file", "--triggerFile", metavar="FILE", help="File that contains the message.")
@click.option("--topic", help="Input topic; required if there are several.")
@click.option(
    "--schema-type",
    type=click.Choice(SCHEMA_TYPES, case_sensitive=False),
    help="Schema type of the message (default: plain bytes).",
)
@click.option("--no-wait", is_flag=True, help="Spark: print the id of the run, and do not wait for its completion.")
def trigger(rest: Admin, /, no_wait: bool, **flags: str | None) -> None:
    """Send a message to a function and print its output.

    A function with --runtime spark takes no message: it processes the backlog of its inputs, and the command waits for
    its completion.
    """
    value, file, topic, schema_type = (
        flags.pop(name) for name in ("trigger_value", "trigger_file", "topic", "schema_type")
    )
    target = find_target(**flags)
    if value is not None and file is not None:
        raise Failure("--trigger-value and --trigger-file cannot be combined")
    ctx = click.get_current_context()
    if value is None and file is None:
        for flag, given, says in (
            ("--topic", topic, "the topic of a message"),
            ("--schema-type", schema_type, "the type of a message"),
        ):
            if given is not None:
                raise Failure(f"{flag} sets {says}: add --trigger-value or --trigger-file, or remove {flag}")
        _trigger_run(ctx, rest, target, no_wait=no_wait)
    elif no_wait:
        raise Failure("--no-wait cannot be combined with a message: it is only for Spark functions, which take none")
    else:
        _trigger_message(ctx, rest, target, _parts(value, file, topic, schema_type))


def _parts(
    value: str | None, file: str | None, topic: str | None, schema_type: str | None
) -> dict[str, tuple[str | None, str | bytes, str]]:
    parts: dict[str, tuple[str | None, str | bytes, str]] = {}
    if file is not None:
        try:
            content = Path(file).read_bytes()
        except OSError as exc:
            raise Failure(f"--trigger-file {file} cannot be read: {exc.strerror}") from exc
        parts["dataStream"] = (Path(file).name, as_message(content, schema_type), "application/octet-stream")
    elif schema_type is None:
        parts["data"] = (None, value or "", "text/plain")
    else:
        content = as_message((value or "").encode(errors="surrogateescape"), schema_type)
        parts["dataStream"] = ("value", content, "application/octet-stream")
    if topic is not None:
        parts["topic"] = (None, topic, "text/plain")
    return parts


def _trigger_message(ctx: click.Context, rest: Admin, target: Target, parts: dict[str, Any]) -> None:
    answer = rest.send_parts_raw("POST", f"{target.path}/trigger", parts)
    reason = answer.headers.get(NO_OUTPUT_HEADER.lower(), "")
    if current(ctx).output == "json":
        said = {"output": None, "reason": reason} if reason else {"output": answer.text}
        click.echo(json.dumps(said))
    elif reason:
        click.echo(reason, err=True)
    elif answer.content:
        sys.stdout.buffer.write(answer.content + b"\n")


def _trigger_run(ctx: click.Context, rest: Admin, target: Target, *, no_wait: bool) -> None:
    config = rest.get(target.path) or {}
    if config.get("runtimeEnv") != "spark":
        raise Failure(
            "no message specified: add --trigger-value TEXT or --trigger-file FILE; only functions with --runtime"
            " spark are triggered without a message"
        )
    run_id = rest.post(f"{target.path}/trigger", noWait=True)["runId"]
    is_json = current(ctx).output == "json"
    if no_wait:
        if is_json:
            print_json({"runId": run_id})
        else:
            click.echo(run_id)
        return
    try:
        with silent() if is_json else bar() if wants_table(ctx) else lines() as show:
            run = follow(rest, target, run_id, show)
    except KeyboardInterrupt:
        raise Failure(
            f"stopped waiting; run {run_id} continues: use `functions status` to monitor it, or `functions stop` to"
            " end it"
        ) from None
    if is_json:
        print_json(run)
    if run["stage"] != "done":
        reason = run["reason"]
        raise Failure(
            f"run {run_id} {_PAST[run['stage']]}"
            + (f": {reason}; see functions logs --name {target.name}" if reason else "")
        )
    if not is_json:
        took_s = (run["endedMs"] - run["startedMs"]) / 1000
        what = f"{run['rows']:,} rows, {run['tasksDone']} tasks, {took_s:.1f} s"
        nothing = "all inputs were already processed"
        click.echo(f"run {run_id} is done: {what if run['tasksTotal'] else nothing}")


_PAST = {"failed": "failed", "cancelled": "was cancelled"}


def follow(rest: Admin, target: Target, run_id: str, show: _Show) -> Run:
    """Follow a run until its completion, and return its last record."""
    known_s = requested_s = time.monotonic()
    trouble = ""
    while True:
        try:
            status = rest.get(f"{target.path}/0/status") or {}
        except Failure as exc:
            if exc.status == 404:
                raise Failure(f"run {run_id} was aborted: the function was deleted") from exc
            status, trouble = {}, str(exc)
        now_s = time.monotonic()
        run: Run = status.get("run") or {}
        if run.get("runId") == run_id:
            known_s = requested_s = now_s
            show(run)
            if run["stage"] in ENDED:
                return run
        elif now_s - known_s > LOST_AFTER_S:
            why = status.get("error") or trouble or "the function's status does not contain it"
            raise Failure(
                f"no status of run {run_id} for {LOST_AFTER_S:g} s: {why}; trigger the function again to resume the run"
            )
        elif now_s - requested_s > REQUEST_AGAIN_S:
            requested_s = now_s
            trouble = _request_again(rest, target, run_id)
        time.sleep(POLL_S)


def _request_again(rest: Admin, target: Target, run_id: str) -> str:
    """Request a run again on the function's current worker, without affecting an active run; return any error."""
    try:
        rest.post(f"{target.path}/0/trigger", runId=run_id)
    except Failure as exc:
        return str(exc)
    return ""


@contextmanager
def silent() -> Iterator[_Show]:
    """Show no progress."""
    yield lambda run: None


@contextmanager
def lines(file: IO[str] | None = None) -> Iterator[_Show]:
    """Print a line when the stage or its reason changes, and otherwise at most one per `LINE_PERIOD_S`."""
    last: list[Any] = [(), "", 0.0]

    def show(run: Run) -> None:
        text = describe(run)
        now_s = time.monotonic()
        if run["stage"] in ENDED or text == last[1]:
            return
        state = run["stage"], run["reason"]
        if state != last[0] or now_s - last[2] >= LINE_PERIOD_S:
            last[:] = [state, text, now_s]
            click.echo(text, file=file)

    yield show


def describe(run: Run) -> str:
    """Describe the progress of a run in one line."""
    text = f"run {run['runId']}: {run['stage']}"
    if run["tasksTotal"]:
        text += f", {run['tasksDone']} of {run['tasksTotal']} tasks, {run['rows']:,} rows"
        if run["rowsPerSecond"]:
            text += f", {run['rowsPerSecond']:,.0f} rows/s"
    waits_for = run["reason"]  # while it is running
    return f"{text}; {waits_for}" if waits_for else text


RUN_COLUMNS = ("stage", "tasks", "rows", "rows/s", "lag")
"""Columns of `functions status` for functions with --runtime spark, which execute runs."""


def run_cells(run: Run | None) -> tuple[str, ...]:
    """Return the cells of `RUN_COLUMNS`."""
    if run is None:
        return ("",) * len(RUN_COLUMNS)
    lag = "" if run["lag"] is None else f"{run['lag']:,}"
    tasks = f"{run['tasksDone']} of {run['tasksTotal']}" if run["tasksTotal"] else ""
    return run["stage"], tasks, f"{run['rows']:,}", f"{run['rowsPerSecond']:,.0f}", lag


@contextmanager
def bar(file: IO[str] | None = None) -> Iterator[_Show]:
    """Show a progress bar of tasks on the terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TextColumn("{task.fields[rows]:,} rows"),
        TextColumn("{task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=file)) as progress:
        task = progress.add_task("planning", total=None, rows=0, rate=0.0)
        said = [""]

        def show(run: Run) -> None:
            if run["reason"] not in ("", *said) and run["stage"] not in ENDED:
                said[:] = [run["reason"]]
                progress.console.print(run["reason"])
            progress.update(
                task,
                description=run["stage"],
                total=run["tasksTotal"] or None,
                completed=run["tasksDone"],
                rows=run["rows"],
                rate=run["rowsPerSecond"],
            )

        yield show
