"""``magnetar sources`` and ``magnetar sinks``: what the flags and files send, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from magnetar.web.deployments import NOTICE_HEADER

from .conftest import FakeRest, Magnetar

SINK = "/admin/v3/sinks/public/default"
SOURCE = "/admin/v3/sources/public/default"


def config_of(rest: FakeRest, kind: str) -> Any:
    return json.loads(rest.last.part(f"{kind}Config").content)


@pytest.mark.parametrize("group", ["sinks", "sink"])
def test_create_sends_every_flag_of_pulsar(magnetar: Magnetar, rest: FakeRest, group: str, tmp_path: Path) -> None:
    code = tmp_path / "f.py"
    code.write_text("def process(x): return x\n")
    result = magnetar(
        group, "create", "--tenant", "t", "--namespace", "n", "--name", "s", "-t", "jdbc", "--classname", "a.B",
        "--sink-config", '{"k": 1}', "-i", "a,b", "--topics-pattern", "p", "--subs-name", "sub",
        "--subs-position", "Earliest", "--custom-serde-inputs", '{"c": "S"}', "--custom-schema-inputs", '{"d": "e"}',
        "--input-specs", '{"f": {"receiverQueueSize": 2}}', "--max-redeliver-count", "3", "--dead-letter-topic", "dlq",
        "--processing-guarantees", "ATLEAST_ONCE", "--retain-ordering", "--retain-key-ordering",
        "--cleanup-subscription", "--parallelism", "2", "--cpu", "1", "--ram", "5", "--disk", "6", "--auto-ack", "true",
        "--timeout-ms", "7", "--negative-ack-redelivery-delay-ms", "8", "--custom-runtime-options", "{}",
        "--secrets", '{"password": "x"}', "--transform-function", str(code), "--transform-function-classname", "f.F",
        "--transform-function-config", "{}", "--log-topic", "log", "--runtime-flags", "-x",
    )  # fmt: skip
    assert (result.code, result.out, result.err) == (0, "Created successfully\n", "")
    assert (rest.last.method, rest.last.path) == ("POST", "/admin/v3/sinks/t/n/s")
    assert rest.last.part("data").content == code.read_bytes()
    assert config_of(rest, "sink") == {
        "tenant": "t", "namespace": "n", "name": "s", "sinkType": "jdbc", "className": "a.B", "configs": {"k": 1},
        "inputs": ["a", "b"], "topicsPattern": "p", "sourceSubscriptionName": "sub",
        "sourceSubscriptionPosition": "Earliest", "topicToSerdeClassName": {"c": "S"}, "topicToSchemaType": {"d": "e"},
        "inputSpecs": {"f": {"receiverQueueSize": 2}}, "maxMessageRetries": 3, "deadLetterTopic": "dlq",
        "processingGuarantees": "ATLEAST_ONCE", "retainOrdering": True, "retainKeyOrdering": True,
        "cleanupSubscription": True, "parallelism": 2, "resources": {"cpu": 1.0, "ram": 5, "disk": 6}, "autoAck": True,
        "timeoutMs": 7, "negativeAckRedeliveryDelayMs": 8, "customRuntimeOptions": "{}",
        "secrets": {"password": "x"}, "transformFunction": str(code), "transformFunctionClassName": "f.F",
        "transformFunctionConfig": "{}", "logTopic": "log", "runtimeFlags": "-x",
    }  # fmt: skip


@pytest.mark.parametrize("group", ["sources", "source"])
def test_create_of_a_source_uploads_its_code(magnetar: Magnetar, rest: FakeRest, group: str, tmp_path: Path) -> None:
    code = tmp_path / "ticker.py"
    code.write_text("class Ticker: pass\n")
    result = magnetar(
        group, "create", "-a", str(code), "-o", "persistent://a/b/ticks", "--deserialization-classname", "S", "-st",
        "string", "--producer-config", '{"batchBuilder": "x"}', "--batch-source-config", '{"a": 1}',
        "--batch-builder", "KEY_BASED", "--sourceConfig", '{"rate": 2}', "--processingGuarantees", "ATLEAST_ONCE",
    )  # fmt: skip
    assert (result.code, result.out) == (0, "Created successfully\n"), result.err
    assert result.err == "name of the source: ticker-ticks\n"
    assert (rest.last.method, rest.last.path) == ("POST", f"{SOURCE}/ticker-ticks")
    assert config_of(rest, "source") == {
        "archive": str(code), "topicName": "persistent://a/b/ticks", "serdeClassName": "S", "schemaType": "string",
        "producerConfig": {"batchBuilder": "x"}, "batchSourceConfig": {"a": 1}, "batchBuilder": "KEY_BASED",
        "configs": {"rate": 2}, "processingGuarantees": "ATLEAST_ONCE", "name": "ticker-ticks",
    }  # fmt: skip
    assert (rest.last.part("data").file_name, rest.last.part("data").content) == ("ticker.py", code.read_bytes())


def test_a_file_has_the_whole_config_or_that_of_the_connector(
    magnetar: Magnetar, rest: FakeRest, tmp_path: Path
) -> None:
    file = tmp_path / "pg.yml"
    call = ("sinks", "create", "--sink-type", "jdbc", "--inputs", "orders", "--sink-config-file", str(file))
    file.write_text("jdbcUrl: postgresql://db/shop\ntableName: orders\n")
    assert magnetar(*call).code == 0
    short = {"configs": {"jdbcUrl": "postgresql://db/shop", "tableName": "orders"}}
    flags = {"sinkType": "jdbc", "inputs": ["orders"], "name": "jdbc-orders"}
    assert config_of(rest, "sink") == {**short, **flags}
    assert magnetar(*call, "--sink-config", '{"tableName": "o", "key": "id"}').code == 0
    assert config_of(rest, "sink")["configs"] == {**short["configs"], "tableName": "o", "key": "id"}
    file.write_text('{"name": "n", "parallelism": 3, "configs": {"a": 1}, "secrets": {"password": "x"}}')
    assert magnetar(*call).code == 0
    whole = {"name": "n", "parallelism": 3, "configs": {"a": 1}, "secrets": {"password": "x"}}
    assert config_of(rest, "sink") == {**flags, **whole}
    assert magnetar(*call, "--sink-config", '{"b": 2}').code == 0
    assert config_of(rest, "sink")["configs"] == {"b": 2}
    file.write_text("jdbcUrl: x\nparallelism: 3\n")
    refused = magnetar(*call)
    assert (refused.code, refused.err) == (
        1, f"magnetar: config file {file}: jdbcUrl is not a field of a SinkConfig, but parallelism is: put the fields"
        " of the connector itself below configs\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("name: 7", "name must be a string, not 7: quote it"),
        (
            "config: {a: 1}",
            "config is not a field of a SinkConfig; did you mean configs? If it is a field of the connector itself, put"
            " it below configs",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(magnetar: Magnetar, tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "sink.yml"
    file.write_text(f"inputs: [a]\nsinkType: jdbc\n{line}\n")
    result = magnetar("sinks", "create", "--sink-config-file", str(file))
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert words in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("create", "--name", "s", "-i", "a"),
            "no code specified: add --sink-type NAME (`magnetar sinks available-sinks`",
        ),
        (("create", "--sink-type", "file"), "no topic specified for the sink: add --inputs A,B"),
        (("create", "--inputs", "a"), "no sink specified: add --sink-type NAME or --archive FILE"),
        (("create", "--sink-type", "file", "--inputs", "a", "--name", "a/b"), "name 'a/b' contains a slash"),
        (("get", "--name", "public/default/s"), "name 'public/default/s' contains a slash"),
        (("get",), "no sink specified: add --name"),
        (("create", "--name", "s", "-i", "a", "-a", "/no/such.py"), "/no/such.py"),
        (("create", "--name", "s", "--sink-config", "{"), "invalid --sink-config '{'"),
        (("creat",), "unknown command creat; did you mean create"),
        (
            ("localrun", "--name", "s", "--use-tls"),
            "--use-tls requires an address with TLS, not pulsar://127.0.0.1:6650",
        ),
        (("localrun", "--name", "s", "-i", "a", "-t", "nope"), "Built-in sink is not available: unknown sink"),
        (("localrun", "--name", "s", "-i", "a"), "no code specified: add --sink-type NAME, or --archive FILE"),
        (("localrun", "--name", "s", "-i", "a", "-a", "/no.py"), "file /no.py does not exist"),
        (("localrun", "-i", "a", "-t", "file"), "outputDirectory is missing"),
        (("localrun", "-i", "a", "-t", "console", "--broker-service-url", "http://a"), "expected pulsar://"),
    ],
)
def test_what_is_wrong_is_one_line(magnetar: Magnetar, arguments: tuple[str, ...], words: str) -> None:
    result = magnetar("sinks", *arguments)
    assert result.code != 0
    assert result.err.count("\n") == 1
    assert words in result.err


def test_update_sends_what_is_given(magnetar: Magnetar, rest: FakeRest) -> None:
    assert magnetar("sinks", "update", "--name", "s", "--parallelism", "2", "--update-auth-data").code == 0
    assert (rest.last.method, rest.last.path) == ("PUT", f"{SINK}/s")
    assert config_of(rest, "sink") == {"name": "s", "parallelism": 2}
    assert json.loads(rest.last.part("updateOptions").content) == {"updateAuthData": True}
    assert magnetar("sinks", "update", "-t", "file", "-i", "a").code == 1


@pytest.mark.parametrize(
    ("command", "method", "path", "said"),
    [
        ("delete", "DELETE", "/s", "Deleted successfully"), ("start", "POST", "/s/start", "Started successfully"),
        ("stop", "POST", "/s/stop", "Stopped successfully"),
        ("restart", "POST", "/s/restart", "Restarted successfully"),
    ],
)  # fmt: skip
def test_commands_are_one_request(
    magnetar: Magnetar, rest: FakeRest, command: str, method: str, path: str, said: str
) -> None:
    result = magnetar("sources", command, "--name", "s")
    assert (result.code, result.out) == (0, f"{said}\n"), result.err
    assert (rest.last.method, rest.last.path) == (method, SOURCE + path)
    if command != "delete":
        assert magnetar("source", command, "--name", "s", "--instance-id", "1").code == 0
        assert rest.last.path == f"{SOURCE}/s/1/{command}"


def test_lists_definitions_and_status_are_shown(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer(f"GET {SINK}", ["b", "a"])
    assert magnetar("sinks", "list").out == "a\nb\n"
    for call, path in (
        (("sinks", "available-sinks"), "/admin/v3/sinks/builtinsinks"),
        (("sources", "available-sources"), "/admin/v3/sources/builtinsources"),
        (("sinks", "config-definition", "file"), "/admin/v3/sinks/builtinsinks/file/configdefinition"),
        (("sinks", "status", "--name", "s"), f"{SINK}/s/status"),
        (("sinks", "getstatus", "--name", "s", "--instance-id", "2"), f"{SINK}/s/2/status"),
        (("sinks", "get", "--name", "s"), f"{SINK}/s"),
    ):
        rest.answer(f"GET {path}", [{"name": call[1]}])
        result = magnetar(*call)
        assert (result.code, json.loads(result.out)) == (0, [{"name": call[1]}])
    assert magnetar("sinks", "reload").code == 0
    assert (rest.last.method, rest.last.path) == ("POST", "/admin/v3/sinks/reloadBuiltInSinks")
    rest.answer(f"GET {SINK}/s/logs", b"one\ntwo\n", headers={"Content-Type": "text/plain"})
    assert magnetar("sinks", "logs", "--name", "s", "--tail", "2").code == 0
    assert rest.last.query["tail"] == "2"


def test_notice_of_the_worker_is_printed(magnetar: Magnetar, rest: FakeRest) -> None:
    path = "/admin/v3/sources/public/default/s"
    rest.answers[f"POST {path}"] = (204, b"", {NOTICE_HEADER: "warning: files are deleted"})
    result = magnetar(
        "sources", "create", "--name", "s", "-t", "file", "-o", "lines", "--source-config", "{}", "--no-wait"
    )
    assert (result.code, result.err) == (0, "warning: files are deleted\n")
