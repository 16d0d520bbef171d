"""The door `make test-pulsar`: what it says when it is given nothing, or something that starts no Pulsar."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.support.pulsar import STARTER, URL, WEB_URL, ApachePulsar, what_is_wrong
from tests.support.servers import ROOT, ServerFailed, survivors

OF_MAKE = ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
"""Set where these tests run below a make; the inner one would then say where it stands."""
OBEDIENT = f"""#!{sys.executable}
import http.server, json, os, signal, subprocess, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if sys.argv[1] == "serve":
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
        do_PUT = do_DELETE = do_GET
        def log_message(self, *args):
            pass
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
child = subprocess.Popen([sys.executable, __file__, "serve", options["--web-port"]])
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
addresses = {{"brokerServiceUrl": "pulsar://127.0.0.1:" + options["--broker-port"],
             "webServiceUrl": "http://127.0.0.1:" + options["--web-port"], "pid": child.pid}}
with open(options["--ready"] + "~", "w") as file:
    json.dump(addresses, file)
os.rename(options["--ready"] + "~", options["--ready"])
child.wait()
"""
"""A starter with a web server in Pulsar's place; `--functions-worker` takes no value, and comes late enough."""

SHORT_LIVED = OBEDIENT.replace(
    "child.wait()",
    """starts = open(options["--data"] + ".starts", "a+")
starts.write("+" if "--functions-worker" in sys.argv else "-")
starts.seek(0)
if starts.read() == "+-+":
    child.kill()
child.wait()""",
)
"""The same, but it dies once, as soon as it is ready again after a kill."""


def starter(directory: Path, text: str) -> str:
    file = directory / "starter"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("environment", "wrong"),
    [
        ({}, None),
        ({STARTER: sys.executable}, None),
        ({URL: "pulsar://h:1", WEB_URL: "http://h:2"}, None),
        (
            {STARTER: "/nothing"},
            f"{STARTER}: /nothing is no program that can be run; name one that starts an Apache Pulsar",
        ),
        ({URL: "pulsar://h:1"}, f"{URL} and {WEB_URL} go together: {WEB_URL} is missing"),
        ({WEB_URL: "http://h:2"}, f"{URL} and {WEB_URL} go together: {URL} is missing"),
        (
            {STARTER: sys.executable, URL: "pulsar://h:1"},
            f"{STARTER} starts an Apache Pulsar, {URL} and {WEB_URL} name one that runs: set one or the others",
        ),
    ],
)
def test_settings_that_cannot_work_are_named(environment: dict[str, str], wrong: str | None) -> None:
    assert what_is_wrong(environment) == wrong


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("PULSAR=/nothing", "make: PULSAR=/nothing cannot be executed: expected a program that starts Apache Pulsar"),
        ("PULSAR=", "make: no Apache Pulsar: set PULSAR=<starter>, or MAGNETAR_TEST_PULSAR_URL and"),
    ],
)
def test_make_says_in_one_line_what_is_missing(argument: str, said: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make; on Debian: apt-get install make")
    clean = {name: value for name, value in os.environ.items() if name not in (STARTER, URL, WEB_URL, *OF_MAKE)}
    done = subprocess.run(
        ["make", "-s", "pulsar-given", argument], cwd=ROOT, env=clean, capture_output=True, text=True, timeout=20
    )
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    assert done.returncode != 0
    assert len(ours) == 1
    assert ours[0].startswith(said)


def test_starter_that_ends_is_shown_with_its_words(tmp_path: Path) -> None:
    pulsar = ApachePulsar(tmp_path, starter(tmp_path, "#!/bin/sh\necho no Java here >&2\nexit 3\n"))
    with pytest.raises(ServerFailed, match=r"ended with 3:(?s:.*)no Java here"):
        pulsar.start()
    pulsar.stop()


@pytest.mark.slow
def test_starter_is_stopped_killed_and_started_again_on_its_ports_with_nothing_left(tmp_path: Path) -> None:
    pulsar = ApachePulsar(tmp_path, starter(tmp_path, OBEDIENT))
    try:
        pulsar.start()
        first = dict(pulsar.addresses)
        pulsar.kill()
        assert pulsar.is_dead
        pulsar.restart()
        assert pulsar.addresses == first
        assert not pulsar.is_dead
        assert pulsar.process is not None
        family = psutil.Process(pulsar.process.pid).children(recursive=True)
        assert family
    finally:
        pulsar.stop()
    assert pulsar.is_dead
    assert survivors(family, 2) == []


@pytest.mark.slow
def test_killed_pulsar_is_started_until_it_serves(tmp_path: Path) -> None:
    pulsar = ApachePulsar(tmp_path, starter(tmp_path, SHORT_LIVED))
    try:
        pulsar.start()
        pulsar.kill()
        pulsar.restart()
        assert pulsar.is_serving()
    finally:
        pulsar.stop()
    # Each start after an end that was not orderly is one without functions worker, and is stopped again.
    assert (tmp_path / "data.starts").read_text() == "+-+-+"


@pytest.mark.slow
def test_pulsar_outlives_the_thread_that_started_it_again(tmp_path: Path) -> None:
    pulsar = ApachePulsar(tmp_path, starter(tmp_path, OBEDIENT))
    try:
        pulsar.start()
        pulsar.kill()
        thread = threading.Thread(target=pulsar.restart)
        thread.start()
        thread.join()
        assert pulsar.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            pulsar.process.wait(0.5)
    finally:
        pulsar.stop()


@pytest.mark.slow
def test_pulsar_that_never_comes_back_is_given_up_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulsar = ApachePulsar(tmp_path, starter(tmp_path, OBEDIENT))
    pulsar.start()
    pulsar.kill()
    starter(tmp_path, "#!/bin/sh\necho bookie is gone >&2\nexit 3\n")
    monkeypatch.setattr("tests.support.pulsar.RESTART_TIMEOUT_S", 0.2)
    with pytest.raises(
        ServerFailed, match=r"back within 0.2 s, started \d+ times; the last(?s:.*)with 3:(?s:.*)bookie is gone"
    ):
        pulsar.restart()
    assert pulsar.is_dead
