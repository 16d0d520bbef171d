"""What an operator or a user of the worker cluster does wrong has its one-line answer, and what runs is unharmed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import magnetar
import pytest
from magnetar.client import EARLIEST
from magnetar.wire.functions_pb2 import FunctionMetaData

from tests.support.command import Answer, call
from tests.support.functions import Functions
from tests.support.servers import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

SOURCE = "def process(text):\n    return text\n"
NAME = "victim"


@pytest.fixture(scope="module")
def deployed(standalone: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a function that runs, and must still run at the end."""
    file = tmp_path_factory.mktemp("victim") / "victim.py"
    file.write_text(SOURCE)
    create(standalone, file).ok()
    with Functions(standalone.web_url) as functions:
        wait_for(lambda: functions.status(NAME)["running"], "running function")
        yield file
        status = functions.status(NAME)
        assert (status["running"], status["numRestarts"]) == (True, 0)
        functions.delete(NAME)


def create(server: Server, file: Path, *flags: str, name: str = NAME, verb: str = "create") -> Answer:
    given = () if verb == "update" else ("--py", str(file), "--classname", "victim.process", "--inputs", "victim-in")
    return call("functions", verb, "--name", name, *given, *flags, admin_url=server.web_url)


@pytest.mark.parametrize(
    ("parallelism", "words"),
    [("0", ("parallelism", "positive")), ("-3", ("parallelism", "positive")), ("10000", ("10000", "1000"))],
)
@pytest.mark.parametrize("verb", ["create", "update"])
def test_impossible_parallelism_is_refused(
    standalone: Server, deployed: Path, verb: str, parallelism: str, words: tuple[str, ...]
) -> None:
    name = NAME if verb == "update" else "other"
    create(standalone, deployed, "--parallelism", parallelism, name=name, verb=verb).refused(*words)


def test_function_that_exists_is_not_created_again(standalone: Server, deployed: Path) -> None:
    create(standalone, deployed).refused(f"Function {NAME} already exists")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tenant", "nobody"), ("Tenant does not exist",)),
        (("--namespace", "nowhere"), ("Namespace does not exist",)),
    ],
)
def test_tenant_and_namespace_must_exist(
    standalone: Server, deployed: Path, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    create(standalone, deployed, *flags, name="other").refused(*words)


def test_function_that_does_not_exist_is_named(standalone: Server, deployed: Path) -> None:
    create(standalone, deployed, "--parallelism", "2", name="ghost", verb="update").refused("ghost", "doesn't exist")
    call("functions", "delete", "--name", "ghost", admin_url=standalone.web_url).refused("ghost", "doesn't exist")


def test_update_that_changes_nothing_is_refused(standalone: Server, deployed: Path) -> None:
    create(standalone, deployed, "--parallelism", "1", verb="update").refused("Update contains no change")


def record_of(server: Server, name: str) -> FunctionMetaData:
    """The newest record of a function in the metadata topic."""
    client = magnetar.Client(server.service_url)
    try:
        reader = client.create_reader("persistent://public/functions/metadata", EARLIEST)
        newest = b""
        while reader.has_message_available():
            message = reader.read_next(30_000)
            newest = message.data if message.key == f"public/default/{name}" else newest
        return FunctionMetaData.FromString(newest)
    finally:
        client.close()


@pytest.mark.parametrize("is_deletion", [False, True])
def test_update_of_an_old_version_is_refused(standalone: Server, deployed: Path, is_deletion: bool) -> None:
    """A worker that has not read the newest record hands a request to the leader."""
    create(standalone, deployed, "--user-config", f'{{"deletion": {str(is_deletion).lower()}}}', verb="update").ok()
    stale = record_of(standalone, NAME)
    assert stale.version > 0
    answer = httpx.put(
        f"{standalone.worker_url}/admin/v3/functions/leader/public/default/{NAME}",
        files={
            "functionMetaData": ("metadata", stale.SerializeToString(), "application/octet-stream"),
            "delete": (None, str(is_deletion).lower()),
        },
        headers={"X-Magnetar-Request-Id": f"stale-{is_deletion}"},
    )
    verb = "Delete" if is_deletion else "Update"
    expected = f"{verb} request ignored because it is out of date. Please try again."
    assert (answer.status_code, answer.json()) == (400, {"reason": expected})


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port on which nobody listens, and nobody will while it is bound."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


def worker(server: Server, directory: Path, *flags: str) -> Answer:
    """A worker that must not come up; later flags win."""
    urls = ("--service-url", server.service_url, "--admin-url", server.web_url)
    return call("worker", "--data-dir", str(directory), "--worker-port", "0", *urls, *flags)


def test_worker_with_the_id_of_a_living_one_is_refused(standalone: Server, deployed: Path, tmp_path: Path) -> None:
    (living,) = httpx.get(f"{standalone.worker_url}/admin/v2/worker/cluster", timeout=60).json()
    line = worker(standalone, tmp_path, "--worker-id", living["workerId"]).refused(living["workerId"], "--worker-id")
    assert str(living["port"]) in line
    assert len(httpx.get(f"{standalone.worker_url}/admin/v2/worker/cluster", timeout=60).json()) == 1


@pytest.mark.parametrize(("flag", "scheme"), [("--service-url", "pulsar"), ("--admin-url", "http")])
def test_worker_whose_broker_is_not_there_names_it(
    standalone: Server, tmp_path: Path, nobody: int, flag: str, scheme: str
) -> None:
    worker(standalone, tmp_path, flag, f"{scheme}://127.0.0.1:{nobody}").refused(
        f"{scheme}://127.0.0.1:{nobody}", "magnetar broker", flag
    )


def test_worker_with_an_admin_url_without_scheme_is_refused(standalone: Server, tmp_path: Path) -> None:
    worker(standalone, tmp_path, "--admin-url", "127.0.0.1:8080").refused("'127.0.0.1:8080'", "http://host:port")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workerIdd: w7\n", ("workerIdd", "workerId?")),
        ("reschedualTimeoutMs: 5\n", ("reschedualTimeoutMs", "rescheduleTimeoutMs?")),
        ("zebra: 1\n", ("zebra", "docs/cli.md")),
        ("failureCheckFreqMs: often\n", ("failureCheckFreqMs", "often", "whole number")),
        ("pulsarFunctionsNamespace: functions\n", ("pulsarFunctionsNamespace", "functions", "tenant/namespace")),
        ("functionAssignmentTopicName: instances\n", ("instances", "distinct")),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_misspelt_or_impossible_key_of_functions_worker_yml_is_refused(
    standalone: Server, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    config = tmp_path / "functions_worker.yml"
    config.write_text(text)
    worker(standalone, tmp_path, "--config", str(config)).refused(*words)
