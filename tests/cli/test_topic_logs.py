"""`functions logs --from-topic`: what a function has logged, wherever its workers are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Answer, call
from tests.support.servers import COMMAND, Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CODE = """
def process(text, context):
    print("a line\\nof " + text)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("topic-logs")) as it:
        yield it


def magnetar(server: Server, *arguments: str) -> Answer:
    return call(*arguments, admin_url=server.web_url, service_url=server.service_url)


def create(server: Server, directory: Path, name: str, *flags: str) -> None:
    code = directory / "says.py"
    code.write_text(CODE)
    create = ("functions", "create", "--py", str(code), "--classname", "says.process", "--inputs", f"{name}-in")
    magnetar(server, *create, "--name", name, *flags).ok()


def lines(server: Server, name: str, *flags: str) -> list[str]:
    """The lines of a log topic without their times."""
    found = magnetar(server, "functions", "logs", "--name", name, "--from-topic", *flags).ok().out.splitlines()
    return [" ".join(word for word in line.split(" ") if not word.endswith("Z")) for line in found]


def test_lines_of_all_instances_are_read_from_all_partitions(server: Server, tmp_path: Path) -> None:
    magnetar(server, "topics", "create-partitioned-topic", "said", "-p", "2").ok()
    create(server, tmp_path, "two", "--parallelism", "2", "--log-topic", "said")
    create(server, tmp_path, "other", "--log-topic", "said")
    magnetar(server, "produce", "other-in", "-m", "another function").ok()
    magnetar(server, "produce", "two-in", *[flag for number in range(8) for flag in ("-m", f"m{number}")]).ok()
    expected = {f"INFO of m{number}" for number in range(8)}

    def said() -> set[str]:
        return {line.partition(" ")[2] for line in lines(server, "two")}

    wait_for(lambda: expected <= said(), "all lines on the topic")
    assert "INFO of another function" not in said()
    one = lines(server, "two", "--instance", "1")
    assert one == [line.removeprefix("[1] ") for line in lines(server, "two") if line.startswith("[1] ")]
    assert lines(server, "two", "--tail", "2") == lines(server, "two")[-2:]


def test_lines_that_come_are_shown(server: Server, tmp_path: Path) -> None:
    create(server, tmp_path, "followed", "--log-topic", "followed-log")
    environment = {**os.environ, "MAGNETAR_ADMIN_URL": server.web_url, "MAGNETAR_SERVICE_URL": server.service_url}
    command = [*COMMAND, "functions", "logs", "--name", "followed", "--from-topic", "-f", "--instance", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as following:
        try:
            magnetar(server, "produce", "followed-in", "-m", "now").ok()
            assert following.stdout is not None
            assert any(line.endswith("INFO of now\n") for line in following.stdout)
        finally:
            following.terminate()


def test_a_function_without_log_topic_is_named(server: Server, tmp_path: Path) -> None:
    create(server, tmp_path, "silent")
    refused = magnetar(server, "functions", "logs", "--name", "silent", "--from-topic").refused("no log topic")
    assert "functions update --name silent --log-topic TOPIC" in refused
