"""Where the code of packages and pickles is loaded: in instances and examinations, and in no server or command."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import psutil
import pytest
from magnetar import Client

from tests.support.servers import COMMAND, ROOT, Server, descendants, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

TELLS = """
import json, os
with open({told!r}, "a") as file:
    file.write(json.dumps([os.getpid(), os.getppid()]) + chr(10))
"""


def command(server: Server, *words: str) -> int:
    """Run a command to its end and return the number of its process."""
    process = subprocess.Popen(
        [*COMMAND, "--admin-url", server.web_url, "--service-url", server.service_url, *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()
    return process.pid


def test_packages_and_pickles_are_loaded_by_instances_and_examinations_only(tmp_path: Path) -> None:
    told = tmp_path / "told"
    module, archive, fetched = tmp_path / "teller.py", tmp_path / "teller.zip", tmp_path / "fetched"
    module.write_text(TELLS.format(told=str(told)) + "def process(input):\n    return input\n")
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.write(module, "teller.py")
        zipped.writestr("more.txt", "another content")
    named = ("--tenant", "public", "--namespace", "default", "--name", "teller")
    whole = (*named, "--classname", "teller.process", "--inputs", "in", "--output", "out")
    with running("standalone", tmp_path / "server") as server:
        commands = [command(server, "functions", "create", "--py", str(module), *whole)]
        servers = {
            one.pid for one in (psutil.Process(server.pid), *descendants(server.pid)) if "instance" not in title(one)
        }
        assert len(servers) >= 4, "broker, state store, worker and zygote"
        commands.append(command(server, "functions", "update", "--py", str(archive), *whole))
        for verb in ("get", "status", "stop", "start", "versions"):
            commands.append(command(server, "functions", verb, *named))
        commands.append(command(server, "functions", "download", *named, "--destination-file", str(fetched)))
        _deploy_pickle(server, told)
        wait_for(lambda: len(told.read_text().splitlines()) >= 5, "loads by instances and examinations", 60)
        zygote = next(pid for pid in servers if "magnetar zygote" in title(psutil.Process(pid)))
        loads = [json.loads(line) for line in told.read_text().splitlines()]
        assert not {load[0] for load in loads} & {*servers, *commands, os.getpid()}
        assert {load[1] for load in loads} == {zygote}, "all are children of what forks instances and examinations"


def title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


class Tells:
    """An object that tells of the process which loads its pickle."""

    def __init__(self, told: str) -> None:
        self.told = told

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, (TELLS.format(told=self.told),))


def _deploy_pickle(server: Server, told: Path) -> None:
    carried = Tells(str(told))

    def process(value: str) -> str:
        return f"{value}{carried}"

    with Client(server.service_url, admin_url=server.web_url) as client:
        client.functions.deploy(process, name="pickled", inputs="pickled-in", output="pickled-out")
