"""The state of a version is kept when it is replaced, and comes back with it; from the command line, on all parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.command import Answer, call
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

COUNT = """
def process(input, context):
    context.incr_counter("messages", 1)
    context.put_state("last", "VERSION " + input)
    return "VERSION " + input
"""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


class Counter:
    """A function that counts in its state, and what is asked of it."""

    def __init__(self, server: Server, directory: Path, name: str) -> None:
        self.server = server
        self.name = name
        self._directory = directory
        self._sent = 0

    def cli(self, *arguments: str) -> Answer:
        return call(*arguments, admin_url=self.server.web_url, service_url=self.server.service_url)

    def functions(self, command: str, *arguments: str) -> Answer:
        return self.cli("functions", command, "--name", self.name, *arguments)

    def source(self, version: str) -> str:
        file = self._directory / f"{self.name}.py"
        file.write_text(COUNT.replace("VERSION", version))
        return str(file)

    def create(self, *more: str) -> None:
        self.functions(
            "create", "--py", self.source("version one"), "--classname", f"{self.name}.process",
            "--inputs", f"{self.name}-in", "--output", f"{self.name}-out", "--subs-position", "Earliest", *more,
        ).ok()  # fmt: skip

    def update(self, version: str, *more: str) -> Answer:
        return self.functions("update", "--py", self.source(version), *more)

    def send(self, count: int) -> None:
        texts = [f"m{self._sent + number}" for number in range(count)]
        self._sent += count
        self.cli("produce", f"{self.name}-in", *(one for text in texts for one in ("-m", text))).ok()

    def state(self, key: str = "messages") -> Any:
        answer = self.functions("querystate", "--key", key)
        if answer.code:
            return None
        found = json.loads(answer.out)
        return found.get("numberValue", found.get("stringValue"))

    def counts_to(self, number: int) -> None:
        wait_for(lambda: self.state() == number, f"the count {number}", timeout_s=60)

    def versions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.functions("versions", "-o", "json").ok().out)
        return found

    def kept(self) -> list[int]:
        return [one["version"] for one in self.versions() if one["stateKept"]]


@pytest.fixture(params=["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def guarantee(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_the_state_of_a_version_comes_back_with_it(
    standalone: Server, tmp_path: Path, guarantee: str, runtime: str
) -> None:
    counter = Counter(standalone, tmp_path, f"count_{runtime}_{guarantee.lower()}")
    options = json.dumps({"runtimeEnv": runtime})
    counter.create("--processing-guarantees", guarantee, "--parallelism", "2", "--custom-runtime-options", options)
    counter.send(5)
    counter.counts_to(5)
    assert counter.kept() == []
    counter.update("version two", "--keep-state").ok()
    assert counter.kept() == [0]
    assert counter.state() == 5, "keeping changes nothing"
    counter.send(10)
    counter.counts_to(15)
    assert counter.state("last").startswith("version two ")
    counter.functions("rollback", "--to-version", "0", "--with-state").ok()
    assert counter.state() == 5
    assert counter.state("last").startswith("version one ")
    counter.send(2)
    counter.counts_to(7)
    assert counter.state("last").startswith("version one ")
    counter.functions("putstate", "-s", '{"key": "by hand", "stringValue": "x"}').ok()
    # What was kept stays, and a start or stop is no reason to go back again.
    counter.functions("stop").ok()
    counter.functions("start").ok()
    counter.send(1)
    counter.counts_to(8)
    counter.functions("rollback", "--to-version", "1").ok()
    assert counter.state() == 8, "without --with-state it stays"
    counter.functions("rollback", "--to-version", "0", "--with-state").ok()
    assert (counter.state(), counter.state("by hand")) == (5, None)
    out = counter.cli("consume", f"{counter.name}-out", "-s", "look", "-n", "18", "-p", "Earliest").ok().out
    assert all(f"m{number}" in out for number in range(18)), "every message has its output"


def test_what_was_not_kept_is_refused_by_name(standalone: Server, tmp_path: Path) -> None:
    counter = Counter(standalone, tmp_path, "refused")
    counter.create()
    counter.update("version two").ok()
    counter.functions("rollback", "--to-version", "0", "--with-state").refused(
        "no saved state of version 0 of refused; versions with a saved state: none. Updates with keepState save"
    )
    counter.update("version three", "--keep-state").ok()
    counter.functions("rollback", "--to-version", "0", "--with-state").refused("versions with a saved state: 1.")
    counter.functions("rollback", "--to-version", "2", "--with-state").refused("nothing to roll back")
    counter.functions("update", "--keep-state").refused("Update contains no change")
    assert counter.functions("rollback", "--to-version", "1", "--with-state").ok()


def test_an_automatic_rollback_leaves_the_state_alone(standalone: Server, tmp_path: Path) -> None:
    counter = Counter(standalone, tmp_path, "automatic")
    counter.create()
    counter.send(3)
    counter.counts_to(3)
    bad = tmp_path / "automatic.py"
    bad.write_text("raise ValueError('no good')\ndef process(input):\n    return input\n")
    counter.functions("update", "--py", str(bad), "--keep-state").refused("ValueError: no good")
    counter.send(2)
    counter.counts_to(5)
    assert counter.kept() == [0]
    counter.functions("rollback", "--to-version", "1", "--no-wait").ok()
    counter.functions("rollback", "--to-version", "0", "--with-state").ok()
    assert counter.state() == 3


def test_a_stopped_function_goes_back_and_stays_stopped(standalone: Server, tmp_path: Path) -> None:
    counter = Counter(standalone, tmp_path, "stopped")
    counter.create()
    counter.send(2)
    counter.counts_to(2)
    counter.update("version two", "--keep-state").ok()
    counter.send(2)
    counter.counts_to(4)
    counter.functions("stop").ok()
    counter.functions("rollback", "--to-version", "0", "--with-state").ok()
    assert counter.state() == 2
    status = json.loads(counter.functions("status", "-o", "json").ok().out)
    assert status["numRunning"] == 0


def test_the_copies_go_with_their_function(standalone: Server, tmp_path: Path) -> None:
    counter = Counter(standalone, tmp_path, "gone")
    counter.create()
    counter.send(1)
    counter.counts_to(1)
    counter.update("version two", "--keep-state").ok()
    counter.functions("rollback", "--to-version", "0", "--with-state").ok()
    counter.functions("putstate", "-s", '{"key": "by hand", "stringValue": "x"}').ok()
    counter.functions("delete").ok()
    counter.create()
    assert (counter.kept(), counter.state("by hand")) == ([], None)
    counter.update("version two").ok()
    counter.functions("rollback", "--to-version", "0", "--with-state").refused("versions with a saved state: none")


def test_sources_and_sinks_are_refused(standalone: Server, tmp_path: Path) -> None:
    name = ("--name", "blackhole")
    url = {"admin_url": standalone.web_url, "service_url": standalone.service_url}
    file = tmp_path / "blackhole.py"
    file.write_text(
        "from magnetar import Sink\n\n\nclass Nowhere(Sink):\n    def open(self, config, context): pass\n"
        "    def write(self, record): pass\n    def close(self): pass\n"
    )
    code = ("--archive", str(file), "--classname", "blackhole.Nowhere", "--inputs", "blackhole-in")
    call("sinks", "create", *name, *code, **url).ok()  # type: ignore[arg-type]
    call("sinks", "update", *name, "--parallelism", "2", **url).ok()  # type: ignore[arg-type]
    answer = httpx.post(
        f"{standalone.web_url}/admin/v3/sinks/public/default/blackhole/rollback?toVersion=0&withState=true", timeout=60
    )
    assert answer.status_code == 400
    assert "not supported for sources and sinks, whose state contains their positions" in answer.json()["reason"]
