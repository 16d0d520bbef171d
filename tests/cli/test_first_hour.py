"""The first hour with the command line: help that can be read, and errors that say what to do instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest
from magnetar.cli.functions import functions as function_commands
from magnetar.cli.functions.schema_type import as_message
from magnetar.cli.main import COMMANDS, main, root
from magnetar.cli.messages.busy import who_is_there
from magnetar.cli.nearest import NEAR_NAME, nearest_word
from magnetar.cli.output import Table, print_table
from magnetar.cli.settings import Settings
from magnetar.errors import ConsumerBusy

from .conftest import FakeRest, Magnetar

FUNCTIONS = "/admin/v3/functions/public/default"


def test_magnetar_alone_shows_its_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert lines[0] == "Usage: magnetar [OPTIONS] COMMAND [ARGS]..."
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles[:3] == ["Options:", "Servers and data:", "Functions and connectors:"]
    named = {line.split()[0] for line in lines if line.startswith("  ") and line.split()}
    assert named >= set(COMMANDS)


def test_a_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["functions"]) == 0
    assert "  create" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [("", "functions"), ("functions cr", "create"), ("consume t --subscription-ty", "--subscription-type")],
)
def test_a_shell_completes_as_the_documentation_says(words: str, offered: str) -> None:
    """The function that `eval` defines calls the program so; bash itself is not needed for it."""
    text = f"magnetar {words}"
    environment = {
        **os.environ, "_MAGNETAR_COMPLETE": "bash_complete", "COMP_WORDS": text, "COMP_CWORD": str(text.count(" ")),
    }  # fmt: skip
    program = "import sys; from magnetar.cli.main import main; sys.argv[0] = 'magnetar'; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert f"plain,{offered}" in done.stdout.decode().splitlines()
    source = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "_MAGNETAR_COMPLETE": "bash_source"}, capture_output=True,
        check=True,
    )  # fmt: skip
    assert b"_magnetar_completion" in source.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("functions", "list", "--admin-url", "URL"),
        ("functions", "--admin-url", "URL", "list"),
        ("--admin-url", "http://127.0.0.1:1", "functions", "list", "--admin-url", "URL"),
        ("functions", "list", "--admin-url", "URL", "--service-url", "pulsar://127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_addresses_may_stand_behind_the_command(rest: FakeRest, arguments: tuple[str, ...], magnetar: Magnetar) -> None:
    rest.answer(f"GET {FUNCTIONS}", ["f"])
    assert magnetar(*(rest.url if word == "URL" else word for word in arguments)).out == "f\n"


def test_every_command_that_talks_to_a_server_takes_both_addresses() -> None:
    context = click.Context(root)

    def walk(command: click.Command, path: str) -> None:
        flags = {name for option in command.params for name in option.opts}
        assert {"--admin-url", "--service-url"} <= flags, path
        if isinstance(command, click.Group):
            for name, one in command.commands.items():
                walk(one, f"{path} {name}")

    for name in ("functions", "sinks", "topics", "namespaces", "produce", "consume", "schemas"):
        command = root.get_command(context, name)
        assert command is not None
        walk(command, name)


@pytest.mark.parametrize("url", ["--admin-url", "--service-url"])
def test_a_wrong_address_behind_the_command_is_refused(magnetar: Magnetar, rest: FakeRest, url: str) -> None:
    result = magnetar("functions", "list", url, "localhost")
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert "expected" in result.err
    assert not rest.requests


@pytest.mark.parametrize(
    ("given", "known", "found"),
    [
        ("set-retention", ["get-retention", "remove-retention"], None),
        ("set-retentoin", ["get-retention", "set-retention"], "set-retention"),
        ("start", ["stop"], None),
        ("strat", ["stop", "start"], "start"),
        ("enable-dedup", ["disable-dedup"], None),
        ("disabl-dedup", ["enable-dedup"], None),
        ("grant-permission", ["revoke-permission"], None),
        ("stat", ["stats", "status"], "stats"),
        ("creat", ["create"], "create"),
        ("subscribe", ["unsubscribe"], None),
        ("xyz", ["create", "delete"], None),
    ],
)
def test_what_does_the_opposite_is_never_offered(given: str, known: list[str], found: str | None) -> None:
    assert nearest_word(given, known) == found


def test_a_name_is_offered_only_when_it_is_near() -> None:
    assert nearest_word("Overhaet", ["Overheat", "alarm"], NEAR_NAME) == "Overheat"
    assert nearest_word("orders-v2", ["invoices-v2"], NEAR_NAME) is None


@pytest.mark.parametrize(
    ("call", "path", "lists", "offered"),
    [
        (
            ("functions", "status", "--name", "Overhaet"),
            f"{FUNCTIONS}/Overhaet/status",
            {FUNCTIONS: ["Overheat"]},
            True,
        ),
        (("functions", "logs", "--name", "Overhaet"), f"{FUNCTIONS}/Overhaet/logs", {FUNCTIONS: ["Overheat"]}, True),
        (("functions", "status", "--name", "b"), f"{FUNCTIONS}/b/status", {FUNCTIONS: ["Overheat"]}, False),
        (
            ("topics", "stats", "readigns"),
            "/admin/v2/persistent/public/default/readigns/stats",
            {
                "/admin/v2/persistent/public/default": ["persistent://public/default/readings-partition-0"],
                "/admin/v2/persistent/public/default/partitioned": ["persistent://public/default/readings"],
            },
            True,
        ),
        (
            ("topics", "skip-all", "readings", "-s", "nobody"),
            "/admin/v2/persistent/public/default/readings/subscription/nobody/skip_all",
            {
                "/admin/v2/persistent/public/default": ["persistent://public/default/readings"],
                "/admin/v2/persistent/public/default/partitioned": [],
            },
            False,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_unknown_name_gets_the_near_one_of_the_server(
    magnetar: Magnetar,
    rest: FakeRest,
    call: tuple[str, ...],
    path: str,
    lists: dict[str, list[str]],
    offered: bool,
) -> None:
    for method in ("GET", "POST"):
        rest.answer(f"{method} {path}", {"reason": "it doesn't exist"}, 404)
    for listed, names in lists.items():
        rest.answer(f"GET {listed}", names)
    result = magnetar(*call)
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert result.err.startswith("magnetar: it doesn't exist (HTTP 404)")
    assert ("; did you mean " in result.err) is offered


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (("functions", "create", "alarm.py", "--classname", "a.b"), "--py alarm.py"),
        (("functions", "create", "alarm.yml"), "--function-config-file alarm.yml"),
        (("functions", "status", "alarm"), "--name alarm"),
        (("sinks", "create", "mine.whl"), "--archive mine.whl"),
        (("produce", "readings", "hello"), "--messages hello"),
        (("consume", "readings", "me", "-s", "x"), "--subscription-name me"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_argument_without_its_flag_is_told_the_flag(
    magnetar: Magnetar, rest: FakeRest, call: tuple[str, ...], meant: str
) -> None:
    result = magnetar(*call)
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert f"did you mean {meant}" in result.err
    assert not rest.requests


@pytest.mark.parametrize(
    ("verb", "state", "remedy"), [("stop", "stopped", "`start`"), ("start", "started", "`restart`")]
)
@pytest.mark.parametrize("group", ["functions", "sources", "sinks"])
def test_stop_and_start_twice_say_so(
    magnetar: Magnetar, rest: FakeRest, group: str, verb: str, state: str, remedy: str
) -> None:
    rest.answer(f"POST /admin/v3/{group}/public/default/f/{verb}", {"reason": "Operation not permitted"}, 400)
    result = magnetar(group, verb, "--name", "f")
    assert result.code == 1
    assert f"already {state}" in result.err
    assert remedy in result.err


@pytest.mark.parametrize(("kind", "remedy"), [("Exclusive", "use -t Shared for both"), ("Failover", "use -t Failover")])
def test_a_taken_subscription_is_told_with_who_has_it(rest: FakeRest, kind: str, remedy: str) -> None:
    consumers = [{"consumerName": f"c{number}", "address": f"/127.0.0.1:{number}"} for number in range(1, 6)]
    stats = {"subscriptions": {"s": {"type": kind, "consumers": consumers}}}
    rest.answer("GET /admin/v2/persistent/public/default/t/stats", stats)
    text = who_is_there(Settings(rest.url), "t", "s", ConsumerBusy("taken")).message
    assert text.startswith("subscription s of persistent://public/default/t is in use by c1 at 127.0.0.1:1, c2 at ")
    assert f"and 2 more ({kind}): {remedy}" in text


def test_one_instance_is_named_by_either_flag(magnetar: Magnetar, rest: FakeRest) -> None:
    for flag in ("--instance", "--instance-id"):
        rest.answer(f"GET {FUNCTIONS}/f/3/logs", b"line\n", headers={"Content-Type": "text/plain"})
        assert magnetar("functions", "logs", "--name", "f", flag, "3", "-f").out == "line\n"
        assert rest.last.query == {"tail": "100", "follow": "true"}


OVERVIEW = [
    {"name": "a", "state": "running", "numRunning": 2, "numInstances": 2, "processingGuarantees": "ATLEAST_ONCE",
     "error": ""},
    {"name": "b", "state": "down", "numRunning": 0, "numInstances": 1, "processingGuarantees": "EFFECTIVELY_ONCE",
     "error": "no module named x"},
    {"name": "c", "state": "stopped", "numRunning": 0, "numInstances": 0, "processingGuarantees": "ATMOST_ONCE",
     "error": ""},
]  # fmt: skip


def test_list_shows_states_on_a_terminal(magnetar: Magnetar, rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_commands, "wants_table", lambda _: True)
    monkeypatch.setattr("magnetar.cli.rest.wants_table", lambda _: True)
    rest.answer(f"GET {FUNCTIONS}", OVERVIEW)
    lines = magnetar("functions", "list").out.splitlines()
    assert rest.last.query == {"states": "true"}
    rows = [line.split() for line in lines]
    assert ["a", "running", "2", "of", "2", "ATLEAST_ONCE"] in rows
    assert ["c", "stopped", "0", "of", "0", "ATMOST_ONCE"] in rows
    assert "b: no module named x" in lines
    rest.answer(f"GET {FUNCTIONS}", ["of Pulsar's worker"])
    assert magnetar("functions", "list").out == "of Pulsar's worker\n"


def test_states_have_colours_on_terminals_that_want_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(("name", "state"), [("running", "running"), ("b", "down")])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(table)
    coloured = capsys.readouterr().out
    assert coloured.count("\x1b[32mrunning") == 1  # the state, not the function of that name
    assert "\x1b[31mdown" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(table)
    assert "\x1b[3" not in capsys.readouterr().out
    monkeypatch.delenv("FORCE_COLOR")
    print_table(table)
    assert "\x1b" not in capsys.readouterr().out


def test_trigger_says_why_nothing_came_out(magnetar: Magnetar, rest: FakeRest) -> None:
    headers = {"Magnetar-No-Output": "the function returned None"}
    rest.answers[f"POST {FUNCTIONS}/f/trigger"] = (204, b"", headers)
    call = ("functions", "trigger", "--name", "f", "--trigger-value", "x")
    result = magnetar(*call)
    assert (result.code, result.out, result.err) == (0, "", "the function returned None\n")
    assert json.loads(magnetar(*call, "-o", "json").out) == {"output": None, "reason": "the function returned None"}


@pytest.mark.parametrize(
    ("schema_type", "text", "content"),
    [
        ("INT32", "-2", b"\xff\xff\xff\xfe"),
        ("INT64", "258", b"\0\0\0\0\0\0\1\2"),
        ("DOUBLE", "1.5", b"\x3f\xf8\0\0\0\0\0\0"),
        ("BOOLEAN", "True", b"\1"),
        ("JSON", '{"a": [1, "ü"]}', '{"a":[1,"ü"]}'.encode()),
        ("STRING", "ü", "ü".encode()),
        ("BYTES", "x", b"x"),
    ],
)
def test_trigger_encodes_the_value_by_its_schema(
    magnetar: Magnetar, rest: FakeRest, schema_type: str, text: str, content: bytes
) -> None:
    rest.answer(f"POST {FUNCTIONS}/f/trigger", b"ok")
    call = ("functions", "trigger", "--name", "f", "--trigger-value", text, "--schema-type", schema_type.lower())
    assert magnetar(*call).out == "ok\n"
    assert rest.last.part("dataStream").content == content


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [("INT8", "128"), ("INT32", "x"), ("FLOAT", "1e39"), ("BOOLEAN", "1"), ("JSON", "{"), ("JSON", "NaN")],
)
def test_trigger_refuses_what_is_no_value_of_the_schema(
    magnetar: Magnetar, rest: FakeRest, schema_type: str, text: str
) -> None:
    result = magnetar("functions", "trigger", "--name", "f", "--trigger-value", text, "--schema-type", schema_type)
    assert result.code == 1
    assert f"is not a valid value of --schema-type {schema_type}" in result.err
    assert not rest.requests


def test_bytes_of_a_file_are_checked_too() -> None:
    assert as_message(b"7\n", "INT8") == b"\x07"
    with pytest.raises(click.ClickException, match="is not a valid value of --schema-type STRING"):
        as_message(b"\xff", "STRING")


@pytest.mark.parametrize(
    ("call", "path", "said"),
    [
        ("functions list", "/admin/v3/functions/public/default", "no functions in public/default"),
        ("sources list --tenant a", "/admin/v3/sources/a/default", "no sources in a/default"),
        ("sinks list", "/admin/v3/sinks/public/default", "no sinks in public/default"),
        ("topics list a/b", "/admin/v2/persistent/a/b", "no topics in a/b"),
        ("topics list-partitioned-topics a/b", "/admin/v2/persistent/a/b/partitioned", "no partitioned topics in a/b"),
        ("topics subscriptions t", "/admin/v2/persistent/public/default/t/subscriptions", "no subscriptions on t"),
        ("subscriptions list t", "/admin/v2/persistent/public/default/t/subscriptions", "no subscriptions on t"),
        ("namespaces list a", "/admin/v2/namespaces/a", "no namespaces in a"),
        ("namespaces topics a/b", "/admin/v2/persistent/a/b", "no topics in a/b"),
        ("tenants list", "/admin/v2/tenants", "no tenants"),
        ("clusters list", "/admin/v2/clusters", "no clusters"),
        ("brokers list", "/admin/v2/brokers", "no brokers"),
        ("packages list a/b --type sink", "/admin/v3/packages/sink/a/b", "no sink packages in a/b"),
        ("packages list-versions sink://a/b/c", "/admin/v3/packages/sink/a/b/c", "no versions of sink://a/b/c"),
    ],
)
def test_an_empty_list_says_so_on_standard_error(
    magnetar: Magnetar, rest: FakeRest, call: str, path: str, said: str
) -> None:
    rest.answer(f"GET {path}", [])
    result = magnetar(*call.split())
    assert (result.code, result.out, result.err) == (0, "", f"{said}\n")
    result = magnetar(*call.split(), "-o", "json")
    assert (result.code, result.out, result.err) == (0, "[]\n", "")


def test_an_empty_table_says_so(magnetar: Magnetar, rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_commands, "wants_table", lambda _: True)
    monkeypatch.setattr("magnetar.cli.rest.wants_table", lambda _: True)
    rest.answer(f"GET {FUNCTIONS}", [])
    rest.answer(f"GET {FUNCTIONS}/f/runs", [])
    rest.answer("GET /admin/v3/sinks/builtinsinks", [])
    assert magnetar("functions", "list").err == "no functions in public/default\n"
    assert magnetar("functions", "runs", "--name", "f").err == "no runs yet\n"
    result = magnetar("sinks", "available-sinks")
    assert (result.out, result.err) == ("", "no sinks are installed\n")
