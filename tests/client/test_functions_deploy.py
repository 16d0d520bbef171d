"""``client.functions`` on a real standalone: functions of this file, of scripts and of notebook cells."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import magnetar
import pytest
from magnetar.api.pickled_function import MODULE, VERSION_FILE
from magnetar.client import ConsumerConfig
from magnetar.client.deploy.deployment import pack
from magnetar.client.deploy.functions import Processor
from magnetar.errors import ConnectionLost, DeploymentFailed, InvalidConfig, RequestRefused, UnpicklableFunction

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("deploy")) as it:
        yield it


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[magnetar.Client]:
    with magnetar.Client(server.service_url, admin_url=server.web_url) as it:
        yield it


@pytest.fixture(params=["process", "thread"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Word:
    text: str
    times: int = 2


def double(text: str) -> str:
    return Word(text).text * Word(text).times


def with_context(text: str, context: Any) -> str:
    log.info("saw %s", text)
    print("printed", text)
    return f"{context.get_function_name()} {text} {context.get_user_config_value('sign')}"


class Counter(magnetar.Function):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, input: str, context: magnetar.Context) -> str:  # noqa: A002
        self.seen += 1
        return f"{input} {self.seen}"


def deploy(client: magnetar.Client, function: Callable[..., Any] | Processor, name: str, **settings: Any) -> None:
    client.functions.deploy(function, name=name, inputs=f"{name}-in", output=f"{name}-out", **settings)


def triggered(client: magnetar.Client, name: str, value: str) -> str:
    """What it makes of the value; a trigger waits for ten seconds, starting may take longer on a busy machine."""
    wait_for(lambda: client.functions.status(name)["numRunning"], f"running {name}")
    return client.functions.trigger(name, value).decode()


def test_plain_function_runs(client: magnetar.Client, runtime: str) -> None:
    deploy(client, double, f"double-{runtime}", runtime=runtime)
    assert triggered(client, f"double-{runtime}", "ab") == "abab"


def counted(word: Word) -> Word:
    return Word(word.text.upper(), word.times + 1)


def test_annotations_are_sent_with_the_function(client: magnetar.Client, runtime: str) -> None:
    """Here they are texts, which name a class of this file."""
    deploy(client, counted, f"counted-{runtime}", runtime=runtime, output_schema_type="JSON")
    assert triggered(client, f"counted-{runtime}", '{"text": "tea"}') == '{"text":"TEA","times":3}'


def test_function_with_context_is_configured_and_logs(client: magnetar.Client, runtime: str) -> None:
    name = f"context-{runtime}"
    deploy(client, with_context, name, runtime=runtime, user_config={"sign": "!"})
    assert triggered(client, name, "ab") == f"{name} ab !"
    wait_for(lambda: "printed ab" in client.functions.logs(name), "line of the log")


def test_class_keeps_its_object(client: magnetar.Client, runtime: str) -> None:
    deploy(client, Counter, f"class-{runtime}", runtime=runtime)
    assert [triggered(client, f"class-{runtime}", "ab") for _ in range(2)] == ["ab 1", "ab 2"]


def test_class_written_for_the_official_client_runs(client: magnetar.Client, runtime: str) -> None:
    import pulsar

    class Official(pulsar.Function):  # type: ignore[misc]  # it has no types
        def process(self, input: str, context: Any) -> str:  # noqa: A002
            return f"{input} {context.get_function_name()} {type(pulsar).__name__}"

    deploy(client, Official, f"official-{runtime}", runtime=runtime)
    assert triggered(client, f"official-{runtime}", "ab") == f"ab official-{runtime} PulsarFacade"


def test_objects_run(client: magnetar.Client) -> None:
    class Prefix:
        def __init__(self, text: str) -> None:
            self.text = text

        def process(self, input: str, context: Any) -> str:  # noqa: A002
            return f"{self.text} {input} {context.get_instance_id()}"

    deploy(client, Prefix("a"), "object")
    deploy(client, Prefix("b").process, "method", runtime="thread")
    deploy(client, str.upper, "builtin", runtime="thread")
    assert [triggered(client, name, "x") for name in ("object", "method", "builtin")] == ["a x 0", "b x 0", "X"]


def test_lambda_and_closure_run(client: magnetar.Client, runtime: str) -> None:
    sign = "?"
    deploy(client, lambda text: text + sign, f"lambda-{runtime}", runtime=runtime)
    assert triggered(client, f"lambda-{runtime}", "ab") == "ab?"


def test_imports_of_pulsar_find_the_facade(client: magnetar.Client, runtime: str) -> None:
    def kind(text: str) -> str:
        import pulsar

        return type(pulsar).__name__

    deploy(client, kind, f"pulsar-{runtime}", runtime=runtime)
    assert triggered(client, f"pulsar-{runtime}", "ab") == "PulsarFacade"


def test_second_deploy_replaces_code_and_keeps_the_other_settings(client: magnetar.Client, runtime: str) -> None:
    name = f"again-{runtime}"
    deploy(client, lambda text: text + " first", name, runtime=runtime, user_config={"a": 1})
    assert triggered(client, name, "ab") == "ab first"
    config = client.functions.deploy(lambda text: text + " second", name=name)
    assert (config["userConfig"], config["runtimeEnv"]) == ({"a": 1}, runtime)
    wait_for(lambda: triggered(client, name, "ab") == "ab second", "the new code")


def test_messages_flow_from_all_inputs_to_the_output(client: magnetar.Client) -> None:
    with_earliest = ConsumerConfig(initial_position="Earliest")
    out = client.subscribe("flow-out", "test", with_earliest)
    client.functions.deploy(double, name="flow", inputs=["flow-a", "flow-b"], output="flow-out", parallelism=2)
    for topic in ("flow-a", "flow-b"):
        client.create_producer(topic).send(topic.encode())
    assert sorted(out.receive(30_000).data for _ in range(2)) == [b"flow-aflow-a", b"flow-bflow-b"]
    assert client.functions.status("flow")["numInstances"] == 2


def test_function_goes_by_its_own_name(client: magnetar.Client) -> None:
    config = client.functions.deploy(double, inputs="own-in")
    assert (config["name"], config["className"]) == ("double", f"{MODULE}.double")
    assert client.functions.get(double) == client.functions.get("public/default/double") == config
    assert "double" in client.functions.list()
    wait_for(lambda: client.functions.status(double)["numRunning"] == 1, "running function")
    assert client.functions.stats(double)["receivedTotal"] == 0
    client.functions.delete(double)
    assert "double" not in client.functions.list(tenant="public", namespace="default")
    with pytest.raises(RequestRefused, match="Function double doesn't exist") as caught:
        client.functions.get(double)
    assert caught.value.status == 404


async def test_asyncio_client_deploys(server: Server) -> None:
    async with magnetar.AsyncClient(server.service_url, admin_url=server.web_url) as client:
        await client.functions.deploy(double, name="async", inputs="async-in", output="async-out")
        assert await client.functions.trigger("async", "ab") == b"abab"
        await client.functions.delete("async")
        assert "async" not in await client.functions.list()


def test_cell_of_a_notebook_deploys(server: Server, client: magnetar.Client) -> None:
    """No file holds the code: all of it is in ``__main__``."""
    cell = f"""
import magnetar, enum
class Kind(enum.Enum):
    GOOD = "good"
def judge(text):
    return f"{{text}} is {{Kind.GOOD.value}}"
with magnetar.Client({server.service_url!r}, admin_url={server.web_url!r}) as client:
    client.functions.deploy(judge, inputs="judge-in", output="judge-out")
"""
    subprocess.run([sys.executable, "-c", cell], check=True, timeout=120)
    assert triggered(client, "judge", "tea") == "tea is good"


def test_error_of_the_code_shows_where_it_stands(client: magnetar.Client) -> None:
    deploy(client, lambda text: Word(text, 0).times / 0, "breaks", runtime="thread")
    client.create_producer("breaks-in").send(b"ab")

    def shown() -> bool:
        status = client.functions.status("breaks")["instances"][0]["status"]
        found = status["latestUserExceptions"]
        return bool(found) and "test_functions_deploy.py" in found[0]["exceptionString"]

    wait_for(shown, "error in the status")


def test_module_of_the_workers_that_is_missing_is_in_the_status(client: magnetar.Client, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "not_on_workers.py"
    package.parent.mkdir()
    package.write_text("def helper(text): return text\n")
    sys.path.insert(0, str(package.parent))
    try:
        import not_on_workers  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(package.parent))
    with pytest.raises(DeploymentFailed, match="No module named 'not_on_workers'"):
        deploy(client, lambda text: not_on_workers.helper(text), "lacks")
    status = client.functions.status("lacks")["instances"][0]["status"]
    assert "No module named 'not_on_workers'" in json.dumps(status)


def test_function_that_cannot_be_pickled_is_not_sent(client: magnetar.Client) -> None:
    with pytest.raises(UnpicklableFunction, match="cannot pickle function stuck: closure variable client of"):
        client.functions.deploy(lambda text: client, name="stuck", inputs="stuck-in")
    assert "stuck" not in client.functions.list()


def _posted(server: Server, name: str, content: bytes) -> httpx.Response:
    config = {"className": f"{MODULE}.double", "inputs": [f"{name}-in"], "runtime": "PYTHON"}
    parts: dict[str, tuple[str | None, str | bytes, str]] = {
        "functionConfig": (None, json.dumps(config), "application/json"),
        "data": ("double.zip", content, "application/octet-stream"),
    }
    return httpx.post(f"{server.web_url}/admin/v3/functions/public/default/{name}", files=parts, timeout=60)


def _changed(content: bytes, file: str, old: bytes, new: bytes) -> bytes:
    stream = io.BytesIO()
    source = zipfile.ZipFile(io.BytesIO(content))
    with zipfile.ZipFile(stream, "w") as archive:
        for name in source.namelist():
            found = source.read(name)
            assert name != file or old in found
            archive.writestr(name, found.replace(old, new) if name == file else found)
    return stream.getvalue()


def test_pickle_of_another_python_is_refused(server: Server) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    answer = _posted(server, "foreign", _changed(pack(double).content, VERSION_FILE, here.encode(), b"3.2"))
    assert answer.status_code == 400
    assert answer.json()["reason"] == (
        f"the function was deployed from Python 3.2, but the workers run Python {here}, which cannot load its code:"
        f" deploy it from Python {here}, or as a .py file"
    )


def test_worker_with_another_python_than_its_leader_says_so_in_the_status(
    server: Server, client: magnetar.Client
) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    content = _changed(pack(double).content, f"{MODULE}.py", f"_load({here!r})".encode(), b"_load('3.2')")
    assert _posted(server, "stranger", content).status_code == 204
    wait_for(
        lambda: "deployed from Python 3.2, but the workers run" in json.dumps(client.functions.status("stranger")),
        "reason in the status",
    )


def test_bad_requests_have_their_one_line(client: magnetar.Client) -> None:
    functions = client.functions
    for call, error, message in (
        (lambda: functions.deploy(double), RequestRefused, r"^No input topic\(s\) specified for the function$"),
        (lambda: functions.deploy(lambda text: text, inputs="a"), InvalidConfig, "has no name: pass deploy"),
        (lambda: functions.deploy(double, inputs="a", tenant="nobody"), RequestRefused, "^Tenant does not exist$"),
        (lambda: functions.deploy(double, inputs="a", parallelism=0), RequestRefused, "must be a positive number"),
        (lambda: functions.deploy(double, inputs="a", paralelism=2), InvalidConfig, "did you mean parallelism"),
        (lambda: functions.get("a/b"), InvalidConfig, "expected name, or tenant/namespace/name"),
        (lambda: functions.trigger("nobody", "x"), RequestRefused, "Function nobody doesn't exist"),
    ):
        with pytest.raises(error, match=message):
            call()
    assert "double" not in functions.list()


def test_types_that_contradict_the_settings_are_refused(client: magnetar.Client) -> None:
    def pick(order: dict[str, int]) -> int:
        return order["n"]

    wanted = "inputSpecs[orders].serdeClassName IdentitySerDe supports bytes, float, int, str, but parameter order of"
    with pytest.raises(RequestRefused, match=re.escape(wanted)) as caught:
        client.functions.deploy(pick, inputs="orders", custom_serde_inputs={"orders": "IdentitySerDe"})
    assert caught.value.status == 400


def test_address_of_the_rest_interface_is_derived_or_asked_for() -> None:
    with (
        magnetar.Client("pulsar://127.0.0.1:45678") as client,
        pytest.raises(InvalidConfig, match=r"port is not 6650: pass admin_url: Client\(service_url, admin_url='http"),
    ):
        client.functions.list()
    with (
        magnetar.Client("pulsar://127.0.0.1:6650", admin_url="http://127.0.0.1:1") as client,
        pytest.raises(ConnectionLost, match=r"cannot reach http://127\.0\.0\.1:1: start a server with"),
    ):
        client.functions.list()


def test_a_deployment_that_does_not_come_up_says_why_and_is_rolled_back(client: magnetar.Client, runtime: str) -> None:
    name = f"fails-{runtime}"

    class Fails:
        def __init__(self) -> None:
            raise ValueError("no model")

        def process(self, value: str, context: Any) -> str:
            return value

    with pytest.raises(
        DeploymentFailed, match=r"^version 0 was stored but failed to start: ValueError: no model$"
    ) as bad:
        deploy(client, Fails, name, runtime=runtime)
    assert "Traceback" in bad.value.details
    deploy(client, double, name, runtime=runtime)
    assert client.functions.trigger(name, "ab") == b"abab"
    with pytest.raises(DeploymentFailed, match=r"^version 2 did not start and was rolled back to version 1: Val"):
        client.functions.deploy(Fails, name=name)
    wait_for(lambda: client.functions.status(name)["numRunning"], "the version before")
    assert client.functions.trigger(name, "ab") == b"abab"
    client.functions.deploy(Fails, name=name, wait=False, rollback_on_failure=False)
    with pytest.raises(InvalidConfig, match="invalid wait_timeout_s -1: expected a number of seconds"):
        client.functions.deploy(Fails, name=name, wait_timeout_s=-1)
