from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.functions.functions import stats_table, status_table
from magnetar.cli.output import print_table

from .conftest import FakeRest, Magnetar

FUNCTION = "/admin/v3/functions/public/default/process"


@pytest.fixture
def code(tmp_path: Path) -> str:
    path = tmp_path / "exclaim.py"
    path.write_text("def process(text): return text + '!'\n")
    return str(path)


def test_create_sends_config_and_code(magnetar: Magnetar, rest: FakeRest, code: str) -> None:
    result = magnetar(
        "functions", "create", "--py", code, "--classname", "exclaim.process", "--inputs", "a, b", "--output", "out",
        "--user-config", '{"n": 5}', "--parallelism", "2", "--auto-ack", "false", "--retain-ordering",
        "--processing-guarantees", "ATMOST_ONCE", "--subs-position", "Earliest", "--runtime", "thread", "--ram", "1024",
    )  # fmt: skip
    assert (result.code, result.out) == (0, "Created successfully\n"), result.err
    assert (rest.last.method, rest.last.path) == ("POST", FUNCTION)
    assert rest.last.config() == {
        "className": "exclaim.process", "py": code, "inputs": ["a", "b"], "output": "out", "userConfig": {"n": 5},
        "parallelism": 2, "autoAck": False, "retainOrdering": True, "processingGuarantees": "ATMOST_ONCE",
        "subscriptionPosition": "Earliest", "runtimeEnv": "thread", "resources": {"ram": 1024},
        "tenant": "public", "namespace": "default", "name": "process",
    }  # fmt: skip
    data = rest.last.part("data")
    assert data.file_name == "exclaim.py"
    assert data.content == Path(code).read_bytes()


def test_flags_replace_fields_of_the_file(magnetar: Magnetar, rest: FakeRest, code: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text(
        f"className: exclaim.process\npy: {code}\ninputs: [a]\nparallelism: 3\nresources: {{cpu: 2, ram: 5}}\n"
    )
    assert magnetar("functions", "create", "--function-config-file", str(file), "--ram", "64MB", "-i", "b").code == 0
    config = rest.last.config()
    assert config["parallelism"] == 3
    assert config["inputs"] == ["b"]
    assert config["resources"] == {"cpu": 2, "ram": 64 * 2**20}


def test_old_spellings_work_and_are_not_shown(magnetar: Magnetar, rest: FakeRest, code: str) -> None:
    call = ("functions", "create", "--py", code, "--className", "exclaim.process", "--inputs", "a")
    assert magnetar(*call, "--logTopic", "log").code == 0
    assert rest.last.config()["logTopic"] == "log"
    help_text = magnetar("functions", "create", "--help").out
    assert "--log-topic" in help_text
    assert "logTopic" not in help_text


def test_fqfn_names_the_function(magnetar: Magnetar, rest: FakeRest, code: str) -> None:
    call = ("functions", "create", "--py", code, "--classname", "exclaim.process", "--inputs", "a", "--fqfn", "t/n/f")
    assert magnetar(*call).code == 0
    assert rest.last.path == "/admin/v3/functions/t/n/f"
    assert rest.last.config()["name"] == "f"


@pytest.mark.parametrize("url", ["http://host/f.py", "https://host/f.py", "function://public/default/f@1"])
def test_package_url_is_sent_as_url(magnetar: Magnetar, rest: FakeRest, url: str) -> None:
    assert magnetar("functions", "create", "--py", url, "--classname", "f.process", "--inputs", "a").code == 0
    assert rest.last.part("url").content == url.encode()


def test_local_file_whose_name_begins_like_a_url_is_uploaded(
    magnetar: Magnetar, rest: FakeRest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("http_x.py").write_text("x = 1\n")
    assert magnetar("functions", "create", "--py", "http_x.py", "--classname", "http_x.f", "--inputs", "a").code == 0
    assert rest.last.part("data").file_name == "http_x.py"


def test_update_sends_only_what_was_given(magnetar: Magnetar, rest: FakeRest) -> None:
    result = magnetar("functions", "update", "--name", "process", "--parallelism", "4")
    assert result.out == "Updated successfully\n"
    assert (rest.last.method, rest.last.path) == ("PUT", FUNCTION)
    assert rest.last.config() == {"parallelism": 4, "tenant": "public", "namespace": "default", "name": "process"}
    assert json.loads(rest.last.part("updateOptions").content) == {"updateAuthData": False}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "--classname", "a.b", "--inputs", "x"), ("--py",)),
        (("create", "--py", "none.py", "--inputs", "x", "--name", "f"), ("No Function Classname specified",)),
        (("create", "--py", "none.py", "--classname", "a.b"), ("does not exist", "none.py")),
        (("create", "--py", "."), ("No Function name specified",)),
        (("create", "--py", ".", "--classname", "a.b"), ("is a directory", "zip")),
        (("create", "--inpts", "x"), ("unknown flag --inpts", "did you mean --inputs")),
        (("logs", "--name", "f", "-o", "json"), ("unknown flag -o here", "before the command group: magnetar -o …")),
        (("create", "--user-config", "{", "--classname", "a.b"), ("--user-config", "invalid")),
        (("create", "--user-config", "[1]", "--classname", "a.b"), ("JSON object",)),
        (
            ("create", "--parallelism", "many", "--classname", "a.b"),
            ("invalid --parallelism 'many': expected a whole number",),
        ),
        (("create", "--processing-guarantees", "SOMETIMES", "--classname", "a.b"), ("ATLEAST_ONCE",)),
        (("create", "--function-config-file", "no.yml"), ("no.yml", "No such file")),
        (("get",), ("--name", "--fqfn")),
        (("get", "--fqfn", "a/b"), ("tenant/namespace/name",)),
        (("get", "--fqfn", "a/b/c", "--name", "c"), ("--fqfn", "cannot be combined")),
        (
            ("trigger", "--name", "f", "--trigger-value", "a", "--trigger-file", "b"),
            ("--trigger-value", "--trigger-file"),
        ),
        (("trigger", "--name", "f", "--trigger-value", "a", "--no-wait"), ("--no-wait",)),
        (("trigger", "--name", "f", "--topic", "t"), ("--topic", "remove --topic")),
        (("stat",), ("unknown command stat", "did you mean stats")),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_wrong_call_is_one_line(
    magnetar: Magnetar, rest: FakeRest, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    result = magnetar("functions", *arguments)
    assert result.code != 0
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert all(word in result.err for word in words), result.err
    assert not rest.requests


def test_reason_of_the_server_is_shown_on_one_line(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer(f"GET {FUNCTION}", {"reason": "Function process doesn't exist\n  at all"}, 404)
    result = magnetar("functions", "get", "--name", "process")
    assert (result.code, result.err) == (1, "magnetar: Function process doesn't exist at all (HTTP 404)\n")


def test_nobody_there_names_the_remedy(magnetar: Magnetar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_ADMIN_URL", "http://127.0.0.1:1")
    result = magnetar("functions", "list")
    expected = (
        "magnetar: cannot reach http://127.0.0.1:1: start a server with `magnetar standalone` or use --admin-url\n"
    )
    assert (result.code, result.err) == (1, expected)


@pytest.mark.parametrize(
    ("verb", "method", "path", "said"),
    [
        (("delete",), "DELETE", "", "Deleted successfully"),
        (("start",), "POST", "/start", "Started successfully"),
        (("stop", "--instance-id", "1"), "POST", "/1/stop", "Stopped successfully"),
        (("restart",), "POST", "/restart", "Restarted successfully"),
    ],
)
def test_command_without_answer_says_that_it_is_done(
    magnetar: Magnetar, rest: FakeRest, verb: tuple[str, ...], method: str, path: str, said: str
) -> None:
    assert magnetar("functions", *verb, "--name", "process").out == f"{said}\n"
    assert (rest.last.method, rest.last.path) == (method, FUNCTION + path)
    assert json.loads(magnetar("functions", *verb, "--name", "process", "-o", "json").out) == {"message": said}


STATUS: dict[str, Any] = {"numInstances": 1, "numRunning": 0, "instances": []}


@pytest.mark.parametrize("verb", ["status", "getstatus"])
def test_status_is_json_in_a_pipe(magnetar: Magnetar, rest: FakeRest, verb: str) -> None:
    rest.answer(f"GET {FUNCTION}/status", STATUS)
    assert json.loads(magnetar("functions", verb, "--name", "process").out) == STATUS


def test_list_is_lines_or_json(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer("GET /admin/v3/functions/public/default", ["b", "a"])
    assert magnetar("functions", "list").out == "a\nb\n"
    assert json.loads(magnetar("functions", "list", "-o", "json").out) == ["a", "b"]
    assert json.loads(magnetar("-o", "json", "functions", "list").out) == ["a", "b"]


def test_trigger_prints_what_came_out(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer(f"POST {FUNCTION}/trigger", b"hello!")
    call = ("functions", "trigger", "--name", "process", "--trigger-value", "hello")
    assert magnetar(*call).out == "hello!\n"
    assert rest.last.part("data").content == b"hello"
    assert json.loads(magnetar(*call, "-o", "json").out) == {"output": "hello!"}


def test_logs_are_printed_as_they_come(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer(f"GET {FUNCTION}/logs", b"one\ntwo\n", headers={"Content-Type": "text/plain"})
    assert magnetar("functions", "logs", "--name", "process", "--tail", "5").out == "one\ntwo\n"
    assert rest.last.query == {"tail": "5", "follow": "false"}


def test_download_writes_the_package(magnetar: Magnetar, rest: FakeRest, tmp_path: Path) -> None:
    rest.answer(f"GET {FUNCTION}/download", b"\x00code")
    target = tmp_path / "code.zip"
    result = magnetar("functions", "download", "--name", "process", "--destination-file", str(target))
    assert result.out == "Downloaded successfully\n"
    assert target.read_bytes() == b"\x00code"


def test_status_fits_a_terminal_without_broken_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    error = "message 10:1 failed: Traceback (most recent call last):\n  File x\nValueError: " + "no " * 50
    counters = {"numReceived": 12345678, "numSuccessfullyProcessed": 123456789, "numUserExceptions": 1}
    found = {
        "running": False,
        "error": error,
        "numRestarts": 2,
        "numSystemExceptions": 0,
        "workerId": "127.0.0.1-45197",
    }
    status = {"instanceId": 0, "status": {**found, **counters}}
    print_table(status_table({"numInstances": 1, "numRunning": 0, "instances": [status]}))
    title, *_, headings, _line, row, note = capsys.readouterr().out.splitlines()
    assert title == "0 of 1 instances running"
    assert headings.split() == ["instance", "state", "received", "processed", "errors", "errors", "restarts", "worker"]
    assert row.split() == ["0", "down", "12345678", "123456789", "1", "0", "2", "127.0.0.1-45197"]
    assert note.rstrip() == "0: message 10:1 failed: ValueError: " + "no " * 49 + "no"


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        ('{"key": "k"}', "no value for key 'k': add one of stringValue"),
        ('{"key": "k", "stringValue": null}', "no value"),
        (
            '{"key": "k", "stringValue": "a", "numberValue": 3}',
            "several values for key 'k': use only one of stringValue and numberValue",
        ),
        (
            '{"key": "k", "byteValue": "YQ==", "stringValue": "a"}',
            "several values for key 'k': use only one of stringValue and byteValue",
        ),
        ('{"key": "k", "numberValu": 3}', "unknown field numberValu"),
    ],
)
def test_state_without_one_value_is_refused_before_it_is_sent(
    magnetar: Magnetar, rest: FakeRest, state: str, complaint: str
) -> None:
    result = magnetar("functions", "putstate", "--name", "f", "--state", state)
    assert result.code == 1
    assert complaint in result.err
    assert not rest.requests


@pytest.mark.parametrize(
    "value",
    [
        {"stringValue": "abcdefgh", "numberValue": 0x6162636465666768},
        {"byteValue": [-1, -1, -1, -1, -1, -1, -1, -2], "numberValue": -2},
    ],
)
def test_state_is_put_as_it_was_shown(magnetar: Magnetar, rest: FakeRest, value: dict[str, Any]) -> None:
    rest.answer("POST /admin/v3/functions/public/default/f/state/k", None)
    shown = {"key": "k", **value, "version": 3}
    assert magnetar("functions", "putstate", "--name", "f", "--state", json.dumps(shown)).code == 0


@pytest.mark.parametrize("command", ["create", "putstate", "reset-cursor"])
def test_example_of_a_command_can_be_copied_from_its_help(magnetar: Magnetar, command: str) -> None:
    shown = magnetar("functions", command, "--help").out
    assert f"\n  magnetar functions {command} --" in shown


def test_status_shows_the_newest_error_of_whatever_kind() -> None:
    def exception(text: str, at_ms: int) -> dict[str, Any]:
        return {"exceptionString": text, "timestampMs": at_ms}

    counters = {"numReceived": 4, "numSuccessfullyProcessed": 0, "numUserExceptions": 2, "numSystemExceptions": 2}
    exceptions = {
        "latestUserExceptions": [exception("user 1", 1), exception("user 3", 3)],
        "latestSystemExceptions": [exception("system 2", 2), exception("system 4", 4)],
    }
    found = {"running": True, "error": "", "numRestarts": 0, "workerId": "w", **counters, **exceptions}
    table = status_table({"numInstances": 1, "numRunning": 1, "instances": [{"instanceId": 0, "status": found}]})
    assert table.notes == ["0: system 4"]


def test_tables_of_a_function_have_a_row_for_each_instance() -> None:
    down = {"running": False, "error": "boom\nlast line", "numRestarts": 2}
    counters = {"numReceived": 1, "numSuccessfullyProcessed": 0, "numUserExceptions": 1, "numSystemExceptions": 0}
    status = {"instanceId": 0, "status": {**down, **counters, "workerId": "w"}}
    table = status_table({"numInstances": 2, "numRunning": 0, "instances": [status]})
    assert [tuple(row) for row in table.rows] == [(0, "down", 1, 0, 1, 0, 2, "w")]
    assert table.notes == ["0: boom last line"]
    assert len(table.columns) == len(table.rows[0])

    counted = {
        "receivedTotal": 3,
        "processedSuccessfullyTotal": 2,
        "userExceptionsTotal": 1,
        "systemExceptionsTotal": 0,
    }
    metrics = {**counted, "avgProcessLatency": None, "1min": {"receivedTotal": 1}}
    table = stats_table({**metrics, "avgProcessLatency": 0.25, "instances": [{"instanceId": 0, "metrics": metrics}]})
    assert [tuple(row) for row in table.rows] == [(0, 3, 2, 1, 0, "", 1), ("all", 3, 2, 1, 0, "0.250", 1)]
