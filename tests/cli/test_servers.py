"""Servers as processes: how they start, supervise, stop and die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import magnetar
import psutil
import pytest
from magnetar.compiled import variant
from magnetar.state.client import Increment, TableClient

from tests.support.calm import Calm
from tests.support.command import call
from tests.support.functions import Functions
from tests.support.servers import COMMAND, ROOT, Server, ServerFailed, descendants, running, server
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def worker_of(standalone: Server) -> psutil.Process | None:
    """The worker below a standalone, if there is one now."""
    return child_of(standalone, "worker")


def state_store_of(standalone: Server) -> psutil.Process | None:
    """The state store below a standalone, if there is one now."""
    return child_of(standalone, "state-store")


def child_of(standalone: Server, command: str) -> psutil.Process | None:
    """The child that runs a command: forked it has a title, started by exec a command line."""
    for process in psutil.Process(standalone.pid).children():
        if command in " ".join(process.cmdline()).split():
            return process
    return None


def is_gone(process: psutil.Process) -> bool:
    """Whether it runs no more; in a container without an init process it may stay as a zombie."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_serving(url: str) -> bool:
    return httpx.get(f"{url}/initialized", timeout=5).status_code == 200


def test_standalone_says_where_it_serves_and_ends_cleanly(tmp_path: Path) -> None:
    it = server("standalone", tmp_path)
    it.start()
    try:
        urls = {"brokerServiceUrl", "webServiceUrl", "stateStorageServiceUrl", "workerUrl"}
        assert set(it.addresses) == urls | {"pid"}
        assert it.addresses["pid"] == it.pid
        ready = [line for line in it.log_tail().splitlines() if ": ready: " in line and " broker " in line]
        assert len(ready) == 1
        for url in urls:
            assert str(it.addresses[url]) in ready[0]
        versions = [line for line in it.log_tail().splitlines() if f": magnetar {magnetar.__version__} (" in line]
        assert len(versions) == 1, "one line for all three processes"
        assert versions[0].endswith(
            f" broker magnetar.cli.servers.lifetime: magnetar {magnetar.__version__} ({variant()})"
        )
    finally:
        assert it.stop() == 0  # within 12 s, and nothing below it is left
    assert "Traceback" not in it.log_tail()


def test_standalone_without_worker_refuses_functions(tmp_path: Path) -> None:
    with running("standalone", tmp_path, "--no-functions-worker") as it:
        assert "workerUrl" not in it.addresses
        assert worker_of(it) is None
        call("functions", "list", admin_url=it.web_url).refused("functionsWorkerEnabled", "409")


def test_killed_worker_comes_back_on_its_port(tmp_path: Path) -> None:
    with running("standalone", tmp_path) as it:
        first = worker_of(it)
        assert first is not None
        first.kill()
        wait_for(
            lambda: (found := worker_of(it)) and found.pid != first.pid and is_serving(it.worker_url), "new worker"
        )
        assert f"the worker (pid {first.pid}) was terminated by SIGKILL; restarting in 0.25 s" in it.log_tail()
        wait_for(lambda: "restarted the worker" in it.log_tail(), "word of it in the log")
        assert call("functions", "list", "-o", "json", admin_url=it.web_url).ok().json() == []


def test_children_share_the_memory_of_their_parent(tmp_path: Path) -> None:
    """Started by exec each holds 23 to 25 MB of its own: too much for the 150 MB of the whole."""
    with running("standalone", tmp_path) as it:
        own_mib = {p.cmdline()[0]: own_memory_mib(p) for p in descendants(it.pid)}
        assert set(own_mib) == {"magnetar worker", "magnetar state-store", "magnetar zygote"}
        assert own_mib["magnetar state-store"] < 19, own_mib
        assert own_mib["magnetar zygote"] < 15, own_mib
        assert own_mib["magnetar worker"] < 52, own_mib


def own_memory_mib(process: psutil.Process) -> float:
    """What a process shares with nobody."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def test_instances_find_nothing_of_the_command_line(tmp_path: Path) -> None:
    """Neither the folder in which the server was started, nor its command as `__main__`."""
    source = """
import json, sys

def process(text):
    main = sys.modules["__main__"]
    return json.dumps([sys.argv, main.__name__, text in sys.path])
"""
    config = {"className": "f.process", "inputs": ["in"], "output": "out", "runtimeEnv": "process"}
    with running("standalone", tmp_path) as it, Functions(it.web_url) as functions:
        functions.create("f", source, {**config, "subscriptionPosition": "Earliest"}).raise_for_status()
        answer = httpx.post(
            f"{functions.url}f/trigger", files={"data": (None, str(ROOT))}, timeout=30
        ).raise_for_status()
        assert answer.json() == [["magnetar-instance"], "magnetar.runtime.process.zygote", False]


def test_worker_dies_with_its_broker(tmp_path: Path) -> None:
    it = server("standalone", tmp_path)
    it.start()
    worker = worker_of(it)
    assert worker is not None
    it.kill()
    killed = Calm()
    wait_for(lambda: is_gone(worker), "end of the worker")
    assert killed.calm_s < 1, killed


def test_worker_alone_serves_a_broker_alone(tmp_path: Path) -> None:
    with running("broker", tmp_path / "broker") as broker:
        call("functions", "list", admin_url=broker.web_url).refused("not done initializing", "503")
        urls = ("--service-url", broker.service_url, "--admin-url", broker.web_url, "--worker-id", "alone")
        with running("worker", tmp_path / "worker", *urls) as worker:
            assert set(worker.addresses) == {"workerUrl", "pid"}
            for url in (broker.web_url, worker.worker_url):
                leader = call("functions-worker", "get-cluster-leader", admin_url=url).ok().json()
                assert leader["workerId"] == "alone"
                assert f":{leader['port']}" in worker.worker_url


def test_ctrl_c_ends_it_like_sigterm(tmp_path: Path) -> None:
    it = server("broker", tmp_path)
    it.start()
    os.kill(it.pid, signal.SIGINT)
    assert it.process is not None
    assert it.process.wait(60) == 0
    assert "received SIGINT, stopping" in it.log_tail()


def test_addresses_go_to_standard_output_for_a_dash(tmp_path: Path) -> None:
    command = [*COMMAND, "broker", "--data-dir", str(tmp_path / "data"), "--broker-port", "0", "--web-port", "0"]
    with subprocess.Popen(
        [*command, "--ready-file", "-"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        addresses = json.loads(process.stdout.readline())
        process.terminate()
        assert process.wait(60) == 0
    assert addresses["pid"] == process.pid
    assert addresses["brokerServiceUrl"].startswith("pulsar://127.0.0.1:")


def test_data_survive_a_restart_and_not_a_wipe(tmp_path: Path) -> None:
    it = server("broker", tmp_path)
    try:
        it.start()
        (tmp_path / "data" / "mine.txt").write_text("a user's file")
        call("topics", "create", "t", admin_url=it.web_url).ok()
        call("topics", "create-partitioned-topic", "p", "-p", "2", admin_url=it.web_url).ok()
        it.stop()
        it.start()
        assert "persistent://public/default/t" in call("topics", "list", admin_url=it.web_url).ok().out.split()
        it.stop()
        it.start(["--wipe-data"])
        assert call("topics", "list", "-o", "json", admin_url=it.web_url).ok().json() == []
        assert call("topics", "list-partitioned-topics", "-o", "json", admin_url=it.web_url).ok().json() == []
        assert (tmp_path / "data" / "mine.txt").exists()
    finally:
        it.stop()


def test_config_file_sets_what_flags_do_not(tmp_path: Path) -> None:
    config = tmp_path / "standalone.yml"
    config.write_text(
        "clusterName: mine\ndefaultNumPartitions: 3\nmaxMessageSize: 2000\nworkerId: w-1\nwebServicePort: 1\n"
    )
    with running("standalone", tmp_path, "--config", str(config)) as it:
        assert call("clusters", "list", admin_url=it.web_url).ok().out == "mine\n"
        [worker] = call("functions-worker", "get-cluster", "-o", "json", admin_url=it.web_url).ok().json()
        assert worker["workerId"] == "w-1"
        call("produce", "t", "-m", "x", admin_url=it.web_url, service_url=it.service_url).ok()
        names = call("topics", "list-partitioned-topics", admin_url=it.web_url).ok().out.split()
        assert names == ["persistent://public/default/t"]
        big = tmp_path / "big"
        big.write_bytes(b"x" * 3000)
        call("produce", "t", "-f", str(big), service_url=it.service_url).refused("2000")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokerServicePort: many\n", ("brokerServicePort", "'many'", "whole number")),
        ("allowAutoTopicCreation: 1\n", ("allowAutoTopicCreation", "true or false")),
        ("keepAliveIntervalSeconds: 0\n", ("keep_alive_s=0", "range")),
        ("- a\n", ("key: value",)),
    ],
)
def test_wrong_value_in_a_config_file_is_named(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    config = tmp_path / "standalone.yml"
    config.write_text(text)
    call("standalone", "--data-dir", str(tmp_path / "data"), "--config", str(config)).refused(*words)


def test_killed_state_store_comes_back_on_its_port(tmp_path: Path) -> None:
    with running("standalone", tmp_path) as it:
        client = TableClient(str(it.addresses["stateStorageServiceUrl"]))
        client.apply("public/default/f", b"w" * 16, 1, [Increment(b"kills", 1)])
        first = state_store_of(it)
        assert first is not None
        first.kill()
        wait_for(lambda: "restarted the state store" in it.log_tail(), "word of it in the log")
        assert f"the state store (pid {first.pid}) was terminated by SIGKILL; restarting in 0.25 s" in it.log_tail()
        client.apply("public/default/f", b"w" * 16, 1, [Increment(b"kills", 1)])
        assert client.read("public/default/f", [b"kills"])[0].number == 1  # type: ignore[union-attr]
        client.close()


def test_state_survives_a_restart_and_not_a_wipe(tmp_path: Path) -> None:
    it = server("standalone", tmp_path)

    def kept() -> bool:
        client = TableClient(str(it.addresses["stateStorageServiceUrl"]))
        try:
            found = client.read("public/default/f", [b"kept"])[0] is not None
            client.put("public/default/f", b"kept", b"")
        finally:
            client.close()
        return found

    try:
        it.start()
        assert not kept()
        assert it.stop() == 0
        it.start()
        assert kept()
        it.stop()
        it.start(["--wipe-data"])
        assert not kept()
    finally:
        it.stop()


def test_damaged_state_stops_the_start_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "data" / "state").mkdir(parents=True)
    (tmp_path / "data" / "state" / "state.sqlite").write_bytes(b"this is no database" * 400)
    it = server("standalone", tmp_path)
    with pytest.raises(ServerFailed) as failure:
        it.start()
    lines = it.log_tail().splitlines()
    assert any("state.sqlite is damaged" in line and "restore it from a backup" in line for line in lines)
    assert "the state store did not start: it exited with exit code 1" in lines[-1]
    assert "Traceback" not in str(failure.value)


def test_worker_refuses_what_is_no_address_of_a_state_store(tmp_path: Path) -> None:
    flags = ("worker", "--data-dir", str(tmp_path / "data"), "--worker-port", "0")
    call(*flags, "--state-storage-service-url", "localhost:4181").refused("'localhost:4181'", "bk://host:port")
    config = tmp_path / "functions_worker.yml"
    config.write_text("stateStorageServiceUrl: http://localhost:4181\n")
    call(*flags, "--config", str(config)).refused("'http://localhost:4181'", "bk://host:port")


def test_state_store_takes_its_keys_from_a_file(tmp_path: Path) -> None:
    config = tmp_path / "state.yml"
    config.write_text("storageserver.grpc.port: 70000\nbindAddress: 127.0.0.1\n")
    flags = ("state-store", "--data-dir", str(tmp_path / "data"), "--config", str(config))
    call(*flags).refused("invalid --state-port 70000")
    config.write_text("storageserver.grpc.prot: 4181\n")
    call(*flags).refused("unknown key storageserver.grpc.prot", "storageserver.grpc.port")


def test_standalone_without_stream_storage_has_no_state_store(tmp_path: Path) -> None:
    with running("standalone", tmp_path, "--no-stream-storage") as it:
        assert "stateStorageServiceUrl" not in it.addresses
        assert state_store_of(it) is None
        assert worker_of(it) is not None


def test_damaged_metadata_stop_the_start_with_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "metadata.sqlite").write_bytes(b"this is no database" * 400)
    ports = ("--broker-port", "0", "--web-port", "0")
    call("broker", "--data-dir", str(data), *ports).refused("metadata.sqlite")
