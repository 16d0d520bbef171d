"""Runs three workers on one broker, deploys a function with six instances, kills a worker, and shows the failover.

    .venv/bin/python examples/three-workers/run.py [DIRECTORY]

All servers use free ports and store data in DIRECTORY (default: a temporary one). Prints the instances' workers before
and after the failover, then stops all servers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MAGNETAR = (sys.executable, "-m", "magnetar")
PARALLELISM = 6
START_TIMEOUT_S = 60.0
HEAL_TIMEOUT_S = 30.0
LOOK_EVERY_S = 0.2


@contextmanager
def server(directory: Path, kind: str, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """Run a server; yield its process and addresses once it is ready."""
    directory.mkdir(parents=True, exist_ok=True)
    ready = directory / "ready.json"
    ready.unlink(missing_ok=True)
    command = [*MAGNETAR, kind, "--data-dir", str(directory / "data"), "--ready-file", str(ready), *flags]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None, f"ready {kind}", START_TIMEOUT_S)
            if process.poll() is not None:
                why = (directory / "log").read_text().strip().splitlines() or ["no output"]
                sys.exit(f"{kind} did not start: {why[-1]}")
            yield process, json.loads(ready.read_text())
        finally:
            process.terminate()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait until a condition holds; exit on timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"no {what} after {timeout_s:g} s")
        time.sleep(LOOK_EVERY_S)


def magnetar(admin_url: str, *arguments: str) -> str:
    """Run a command and return its output."""
    command = [*MAGNETAR, "--admin-url", admin_url, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def running_on(admin_url: str) -> dict[int, str]:
    """Return the worker of each running instance, by instance id."""
    status = json.loads(magnetar(admin_url, "functions", "status", "--name", "who", "-o", "json"))
    return {one["instanceId"]: one["status"]["workerId"] for one in status["instances"] if one["status"]["running"]}


def show(title: str, instances: dict[int, str]) -> None:
    """Print the worker of each instance."""
    print(f"\n{title}")
    for number, worker in sorted(instances.items()):
        print(f"  who:{number} runs on {worker}")


def main(directory: Path) -> None:
    """Run the example."""
    with ExitStack() as stack:
        ports = ("--broker-port", "0", "--web-port", "0")
        _, broker = stack.enter_context(server(directory / "broker", "broker", *ports))
        url = str(broker["webServiceUrl"])
        cluster = ("--service-url", str(broker["brokerServiceUrl"]), "--admin-url", url, "--worker-port", "0")
        workers = {}
        for name in ("worker-1", "worker-2", "worker-3"):
            process, _ = stack.enter_context(server(directory / name, "worker", "--worker-id", name, *cluster))
            workers[name] = process
        print(magnetar(url, "functions-worker", "get-cluster"))
        magnetar(
            url, "functions", "create", "--name", "who", "--py", str(HERE / "who.py"), "--classname", "who.process",
            "--inputs", "questions", "--output", "answers", "--parallelism", str(PARALLELISM),
        )  # fmt: skip
        wait_for(lambda: len(running_on(url)) == PARALLELISM, f"{PARALLELISM} running instances", START_TIMEOUT_S)
        show("Before:", running_on(url))

        victim = "worker-2"
        workers[victim].kill()
        killed_at = time.monotonic()
        print(f"\nkilled {victim} (kill -9)")

        def is_healed() -> bool:
            found = running_on(url)
            return len(found) == PARALLELISM and victim not in found.values()

        wait_for(is_healed, f"{PARALLELISM} instances on the other workers", HEAL_TIMEOUT_S)
        show(f"After {time.monotonic() - killed_at:.1f} s:", running_on(url))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="three-workers-") as temporary:
            main(Path(temporary))
