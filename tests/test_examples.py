"""Every example, deployed with the command that its first lines show, on one standalone."""

from __future__ import annotations

import ast
import contextlib
import json
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import magnetar
import pytest

from tests.support.command import call
from tests.support.servers import Server, running
from tests.support.shell import Shell
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = Path(magnetar.__file__).parent / "examples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("examples")) as it:
        yield it


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server)


def test_exclamation_runs_as_it_was_written_for_pulsar(shell: Shell) -> None:
    shell.deploy(
        "shout", EXAMPLES / "exclamation.py", "exclamation.ExclamationFunction", "--user-config", '{"sign": "?"}'
    )
    assert shell.through("shout", "hello", "world", outputs=2) == ["hello?", "world?"]
    wait_for(lambda: "shouting 'hello'" in shell("functions", "logs", "--name", "shout").out, "log line")


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_word_count_counts_the_words_of_each_message(shell: Shell, runtime: str) -> None:
    name = f"words-{runtime}"
    shell.deploy(name, EXAMPLES / "word_count.py", "word_count.count_words", "--runtime", runtime)
    assert shell.through(name, "to be or not to be") == ['{"be": 2, "not": 1, "or": 1, "to": 2}']


def test_package_of_two_modules_imports_the_other(shell: Shell, tmp_path: Path) -> None:
    package = tmp_path / "orders.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for module in ("invoice.py", "prices.py"):
            archive.write(EXAMPLES / "orders" / module, module)
    shell.deploy("orders", package, "invoice.total")
    assert shell.through("orders", '{"apple": 3, "pear": 1}') == ['{"total": 1.65}']
    shell("produce", "orders-in", "-m", '{"melon": 1}')

    def shown_error() -> bool:
        status = shell("functions", "status", "--name", "orders").json()["instances"][0]["status"]
        found = status.get("latestUserExceptions") or [{"exceptionString": ""}]
        return "no price for 'melon': expected one of apple, pear" in found[-1]["exceptionString"]

    wait_for(shown_error, "the article's error in the status")


def test_sensors_raise_an_alarm_for_the_odd_one(shell: Shell) -> None:
    shell.deploy("sensors", EXAMPLES / "sensors.py", "sensors.alarm")
    usual = [json.dumps({"sensor": "roof", "value": 20 + index % 3}) for index in range(30)]
    [alarm] = shell.through("sensors", *usual, json.dumps({"sensor": "roof", "value": 90}))
    assert json.loads(alarm) == {"sensor": "roof", "value": 90, "usual": 21.0}


def test_function_of_a_script_is_deployed_with_its_own_module(shell: Shell, server: Server, tmp_path: Path) -> None:
    script = EXAMPLES / "from_python" / "deploy.py"
    done = subprocess.run(
        [sys.executable, str(script), server.service_url, server.web_url],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer, config, refusal = done.stdout.splitlines()
    assert json.loads(answer) == {"ride": 7, "fare": 19.5}
    assert config == "{'minute': 0.5}"
    assert refusal.startswith(
        "cannot pickle function stuck: closure variable client of main.<locals>.<lambda> has type"
    )
    shell.wait_until_running("fare")


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_accounts_remember_balances_and_refuse_overdrafts(shell: Shell, runtime: str) -> None:
    name = f"accounts-{runtime}"
    shell.deploy(name, EXAMPLES / "accounts.py", "accounts.Accounts", "--retain-ordering", "--runtime", runtime)
    payments = [{"account": "ada", "amount": 50}, {"account": "ada", "amount": -80}, {"account": "ada", "amount": -20}]
    receipts = [json.loads(text) for text in shell.through(name, *map(json.dumps, payments), outputs=3)]
    assert [(receipt["booked"], receipt["balance"]) for receipt in receipts] == [(True, 50), (False, None), (True, 30)]
    # State goes its way beside the outputs.
    wait_for(
        lambda: shell("functions", "querystate", "--name", name, "-k", "ada").json()["numberValue"] == 30, "balance"
    )
    refused = shell("functions", "querystate", "--name", name, "-k", "refused/ada").json()["stringValue"]
    assert json.loads(refused) == payments[1]


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_word_totals_are_shown_by_querystate(shell: Shell, runtime: str) -> None:
    name = f"totals-{runtime}"
    shell("functions", "create", "--py", str(EXAMPLES / "word_totals.py"), "--classname", "word_totals.WordCount",
          "--name", name, "--inputs", f"{name}-in", "--runtime", runtime)  # fmt: skip
    shell("produce", f"{name}-in", "-m", "to be or not to be", "-m", "that is the question")

    def counted() -> bool:
        status = shell("functions", "status", "--name", name).json()["instances"][0]["status"]
        return bool(status["numSuccessfullyProcessed"] == 2)

    wait_for(counted, "two messages processed", timeout_s=60)
    wait_for(
        lambda: call("functions", "querystate", "--name", name, "-k", "question", admin_url=shell.admin_url).code == 0,
        "the last word's count", timeout_s=60,
    )  # fmt: skip
    for word, count in {"to": 2, "be": 2, "or": 1, "question": 1}.items():
        assert shell("functions", "querystate", "--name", name, "-k", word).json()["numberValue"] == count


def test_connectors_bring_rows_of_one_table_into_another(shell: Shell, tmp_path: Path) -> None:
    files = [tmp_path / "from.db", tmp_path / "to.db"]
    for file in files:
        with contextlib.closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
    notes = [(number, f"note {number}") for number in range(500)]
    with contextlib.closing(sqlite3.connect(files[0])) as database, database:
        database.executemany(
            "INSERT INTO notes VALUES (?, ?)", [(n, json.dumps({"id": n, "text": t})) for n, t in notes]
        )
    here = EXAMPLES / "connectors"
    shell("sinks", "create", "--archive", str(here / "notes_sink.py"), "--classname", "notes_sink.NotesSink",
          "--name", "keep-notes", "--inputs", "notes", "--sink-config", json.dumps({"database": str(files[1])}),
          "--subs-position", "Earliest")  # fmt: skip
    shell("sources", "create", "--archive", str(here / "notes_source.py"), "--classname", "notes_source.NotesSource",
          "--name", "read-notes", "--destination-topic-name", "notes",
          "--source-config", json.dumps({"database": str(files[0])}))  # fmt: skip

    def are_there() -> bool:
        with contextlib.closing(sqlite3.connect(files[1])) as database:
            return database.execute("SELECT id, text FROM notes ORDER BY id").fetchall() == notes

    wait_for(are_there, "all notes")


@pytest.mark.parametrize("name", ["notes_source.py", "notes_sink.py"])
def test_connectors_are_classes_of_less_than_twenty_lines(name: str) -> None:
    tree = ast.parse((EXAMPLES / "connectors" / name).read_text())
    connector = tree.body[-1]
    assert isinstance(connector, ast.ClassDef)
    lines = ast.unparse(connector).splitlines()
    assert sum(bool(line.strip()) for line in lines) < 20
