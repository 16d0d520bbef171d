"""``magnetar demo``: the main use case on real input, from an empty directory to a verified result."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import MagnetarError
from ...wire.printable import one_line
from ..failure import Failure
from ..functions.functions import config_part, package_part
from ..rest import Admin, segment
from .connectors import SINK, SINKS, SOURCE, check_kept, create_sink
from .corpus import Corpus, standard_library
from .server import DemoServer

if TYPE_CHECKING:
    from ...state.values import Value
    from .stream import Progress

FUNCTIONS_FILE = Path(__file__).with_name("demo_functions.py")
FUNCTIONS = "/admin/v3/functions/public/default"
COUNTER = "count"
"""Name of the counting function."""
RUNNING_TIMEOUT_S = 30.0
MOST_FREQUENT = 20
KEYS_PER_READ = 10_000


@click.command()
@click.option(
    "--directory",
    default=".demo",
    show_default=True,
    metavar="DIR",
    help="Directory for data and log, removed at the end.",
)
@click.option("--keep", "is_kept", is_flag=True, help="Keep the server running and print the commands to try next.")
@click.option("--files", type=click.IntRange(1), help="Number of files to read (default: all).")
@click.option("--no-spark", is_flag=True, help="Skip the Spark step, even if Spark is installed.")
def demo(directory: str, is_kept: bool, files: int | None, no_spark: bool) -> None:
    """Count the identifiers of Python's standard library, exactly once each, in a function's state."""
    server = DemoServer(Path(directory), is_kept=is_kept)
    is_done = False
    try:
        with step("starting `magnetar standalone`", server):
            started_s = time.monotonic()
            server.start()
            say(f"magnetar standalone is ready after {time.monotonic() - started_s:.1f} s, in {directory}")
        with step("deploying the functions", server):
            deploy(server.addresses["webServiceUrl"])
            kept = server.directory / "identifiers"
            kind = keep(server.addresses["webServiceUrl"], kept)
            has_spark = not no_spark and deploy_spark(server.addresses["webServiceUrl"])
        with step("streaming the corpus", server):
            progress, corpus = run(server, files)
        with step("checking the result", server):
            totals = corpus.count_directly()
            check(totals, server.addresses["stateStorageServiceUrl"])
            check_kept(kept, progress.kept)
            top = most_frequent(totals, server.addresses["webServiceUrl"])
        spark_s = None
        if has_spark:
            with step("counting by Spark", server):
                spark_s = count_by_spark(server, totals)
        is_done = True
    finally:
        if not (is_kept and is_done):
            server.stop()
        if is_done and not is_kept:
            server.clean_up()
    report(progress, totals, top, server if is_kept else None)
    click.echo(f"The file sink {SINK} stored {progress.kept:,} rows of identifiers, as {kind}.")
    if spark_s is not None:
        click.echo(f"A Spark function got the same counts in {spark_s:.1f} s, including its start.")


@contextmanager
def step(what: str, server: DemoServer) -> Iterator[None]:
    """Convert errors in a step to a Failure that contains the step and the log file.

    Raises:
        Failure: the step failed.
    """
    try:
        yield
    except ExceptionGroup as group:
        first = group.exceptions[0]
        raise Failure(explain(what, first, server)) from group
    except (MagnetarError, Failure, OSError) as exc:
        raise Failure(explain(what, exc, server)) from exc


def explain(what: str, error: Exception, server: DemoServer) -> str:
    """Return a message with the failed step, the cause and the remedy."""
    cause = error.message if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
    text = f"{what} failed: {one_line(cause)}"
    return f"{text}; see the server's log, {server.log_file}" if server.log_file.exists() else text


def say(text: str) -> None:
    """Print progress to the user."""
    click.echo(text, err=True)


def deploy(admin_url: str) -> None:
    """Create the two functions through the REST API, and wait until both are running.

    Raises:
        Failure: a function was rejected or is not running; the message contains the reason.
    """
    from .stream import LINES, WORDS

    serde = f"{FUNCTIONS_FILE.stem}.Utf8"
    rest = Admin(admin_url)
    for name, target, source, output in (
        ("identifiers", "Identifiers", LINES, {"output": WORDS, "outputSerdeClassName": serde}),
        (COUNTER, "Count", WORDS, {}),
    ):
        config = {
            "className": f"{FUNCTIONS_FILE.stem}.{target}",
            "customSerdeInputs": {source: serde},
            "subscriptionPosition": "Earliest",
            "processingGuarantees": "EFFECTIVELY_ONCE",
            "py": FUNCTIONS_FILE.name,
            **output,
        }
        rest.send_parts("POST", f"{FUNCTIONS}/{name}", config_part(config) | package_part(str(FUNCTIONS_FILE)))
    for name in ("identifiers", COUNTER):
        wait_until_running(rest, name)
        say(f"function {name} is running")


def keep(admin_url: str, directory: Path) -> str:
    """Create the file sink for the identifiers; return the format of its files."""
    from .stream import WORDS

    rest = Admin(admin_url)
    kind = create_sink(rest, WORDS, directory)
    wait_until_running(rest, SINK, SINKS)
    say(f"sink {SINK} stores the output of function identifiers in {directory}, as {kind}")
    return kind


def deploy_spark(admin_url: str) -> bool:
    """Create the function that counts with Spark, if Spark is available; return whether it is."""
    from . import spark as demo_spark

    reason = demo_spark.why_not()
    if reason:
        say(f"skipping the Spark step: {reason}")
        return False
    rest = Admin(admin_url)
    demo_spark.deploy_spark(rest)
    wait_until_running(rest, demo_spark.NAME)
    say(f"function {demo_spark.NAME} is waiting for its run")
    return True


def count_by_spark(server: DemoServer, totals: Counter[str]) -> float:
    """Count the words of all lines with Spark; return the duration in seconds."""
    from . import spark as demo_spark

    addresses = server.addresses
    say("counting the same identifiers from the topic with a Spark function (starting Spark takes a few seconds)")
    return demo_spark.count_by_spark(addresses["brokerServiceUrl"], addresses["webServiceUrl"], totals)


def wait_until_running(rest: Admin, name: str, among: str = FUNCTIONS) -> None:
    """Wait until the instance of a function or connector is running.

    Raises:
        Failure: it is not running; the message contains its status.
    """
    deadline_s = time.monotonic() + RUNNING_TIMEOUT_S
    while True:
        status = rest.get(f"{among}/{name}/status")
        if status["numRunning"] == status["numInstances"] > 0:
            return
        if time.monotonic() > deadline_s:
            errors = [instance["status"].get("error") or "no error shown" for instance in status["instances"]]
            raise Failure(f"{name} is not running after {RUNNING_TIMEOUT_S:g} s: {errors}")
        time.sleep(0.05)


def run(server: DemoServer, files: int | None) -> tuple[Progress, Corpus]:
    """Stream the corpus through the functions."""
    import uvloop

    from .stream import stream

    root = standard_library()
    corpus = Corpus(root, files)
    if not corpus.paths:
        raise Failure(
            f"{root} contains no .py files: install the standard library's sources (Debian: libpython3-stdlib)"
        )
    say(f"source {SOURCE} is sending all lines of {len(corpus.paths):,} files in {root}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        work = stream(corpus, server.directory / "files", server.addresses["webServiceUrl"])
        return runner.run(work), corpus


def check(expected: Counter[str], state_url: str) -> None:
    """Compare every count in the function's state with the direct count of the same files.

    Raises:
        Failure: the counts differ; the message contains an example.
    """
    from ...state.client import TableClient

    words = list(expected)
    client = TableClient(state_url)
    try:
        [table] = client.tables(f"public/default/{COUNTER}@")
        values: list[Value | None] = []
        for start in range(0, len(words), KEYS_PER_READ):
            values += client.read(table, [word.encode() for word in words[start : start + KEYS_PER_READ]])
    finally:
        client.close()
    for word, value in zip(words, values, strict=True):
        counted = None if value is None else value.number
        if counted != expected[word]:
            raise Failure(
                f"the function counted {word!r} {counted or 0:,} times, but a direct loop {expected[word]:,} times"
            )


def most_frequent(expected: Counter[str], admin_url: str) -> dict[str, int]:
    """Return the most frequent identifiers and their counts, queried one by one as by `querystate`."""
    rest = Admin(admin_url)
    return {
        word: rest.get(f"{FUNCTIONS}/{COUNTER}/state/{segment(word)}")["numberValue"]
        for word, _ in expected.most_common(MOST_FREQUENT)
    }


def report(progress: Progress, totals: Counter[str], top: dict[str, int], kept: DemoServer | None) -> None:
    """Print the result, and commands to try next if the server was kept."""
    width = max(map(len, top))
    click.echo(f"\nThe {MOST_FREQUENT} most frequent identifiers of Python's standard library, by querystate:\n")
    for rank, (word, number) in enumerate(top.items(), start=1):
        click.echo(f"{rank:>4}  {word:<{width}}  {number:>9,}")
    click.echo(
        f"\n{progress.sent:,} lines went through both functions in {progress.last_s - progress.first_s:.1f} s:"
        f" {progress.lines_per_s:,.0f} lines/s.\n{totals.total():,} identifiers, {len(totals):,} different:"
        " a direct count of the same files gives exactly the same."
    )
    if kept is not None:
        click.echo(next_commands(kept))


def next_commands(server: DemoServer) -> str:
    """Return commands to try with the running server."""
    magnetar = Path(sys.argv[0]).name
    if Path(sys.argv[0]).exists():
        magnetar = sys.argv[0]
    urls = f"MAGNETAR_ADMIN_URL={server.addresses['webServiceUrl']}"
    urls += f" MAGNETAR_SERVICE_URL={server.addresses['brokerServiceUrl']}"
    return f"""
The server keeps running as process {server.pid}. To try next:

  export {urls}
  {magnetar} functions list
  {magnetar} functions status --name {COUNTER}
  {magnetar} functions querystate --name {COUNTER} --key self
  {magnetar} functions trigger --name identifiers --trigger-value 'import magnetar'
  {magnetar} topics stats demo-lines
  {magnetar} topics list
  kill {server.pid}    # stops it; its data stays in {server.directory}"""
