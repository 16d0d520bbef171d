"""`magnetar functions dead-letters`: what it shows and sends back, on letters as instances write them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pulsar
import pytest
from magnetar.cli.main import main

from tests.support.functions import Functions
from tests.support.keys import write_pair
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

SOURCE = """
def process(text):
    if text.startswith("bad"):
        raise ValueError("no " + text)
    return text
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("letters")) as server:
        yield server


def run(server: Server, *arguments: str, code: int = 0, group: str = "functions") -> Any:
    """Return the JSON of a command, or the line of its error."""
    addresses = ("--admin-url", server.web_url, "--service-url", server.service_url, "-o", "json")
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        ended = main([*addresses, group, "dead-letters", *arguments])
    assert ended == code, out.getvalue() + errors.getvalue()
    return json.loads(out.getvalue()) if code == 0 else errors.getvalue().strip()


def letters(server: Server, name: str, count: int) -> list[dict[str, Any]]:
    """Wait for so many letters of a function."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        nonlocal found
        found = run(server, "list", "--name", name)
        return len(found) == count

    wait_for(look, f"{count} letters")
    return found


def test_letters_are_listed_shown_and_sent_back(server: Server) -> None:
    client = pulsar.Client(server.service_url)
    config = {"className": "f.process", "inputs": ["in"], "output": "out", "maxMessageRetries": 1}
    with Functions(server.web_url) as functions:
        for name in ("f", "g"):  # they share the topic of letters
            inputs = {"inputs": [f"in-{name}"], "output": f"out-{name}", "deadLetterTopic": "letters"}
            functions.create(name, SOURCE, {**config, "className": f"{name}.process", **inputs}).raise_for_status()
            wait_for(lambda name=name: functions.status(name)["running"], "running")  # type: ignore[misc]
        producer = client.create_producer("in-f")
        producer.send(b"bad 1", partition_key="k", event_timestamp=7, properties={"p": "v"})
        producer.send(b"good")
        producer.send("bad \u00fc".encode())
        client.create_producer("in-g").send(b"bad of g")
        first, second = sorted(letters(server, "f", 2), key=lambda one: one["content"])
        (other,) = letters(server, "g", 1)
        assert other["content"] == "bad of g"
        assert (first["content"], first["key"], first["eventTime"], first["properties"]) == (
            "bad 1",
            "k",
            7,
            {"p": "v"},
        )
        assert (first["topic"], first["tries"]) == ("persistent://public/default/in-f", 2)
        assert first["exception"] == "ValueError: no bad 1"
        assert second["content"] == "bad \u00fc"
        assert "Traceback" in run(server, "show", "--name", "f", first["id"])["traceback"]
        assert "dead letter 'x' does not exist" in run(server, "show", "--name", "f", "x", code=1)

        dry = run(server, "replay", "--name", "f", "--dry-run")
        assert sorted(dry["replayed"]) == sorted([first["id"], second["id"]])
        reader = client.subscribe("elsewhere", "t", initial_position=pulsar.InitialPosition.Earliest)
        assert run(server, "replay", "--name", "f", first["id"], "--to", "elsewhere")["replayed"] == [first["id"]]
        back = reader.receive(20_000)
        assert (back.data(), back.partition_key(), back.event_timestamp(), back.properties()) == (
            b"bad 1", "k", 7, {"p": "v"},
        )  # fmt: skip
        # Sent back to its topic it fails again, and is a letter once more: not in the same replay, which ends.
        assert run(server, "replay", "--name", "f")["replayed"] == [second["id"]]
        (again,) = letters(server, "f", 1)
        assert again["content"] == second["content"]
        assert again["id"] != second["id"]
        text = run(server, "replay", "--name", "f", "9:9", code=1)
        assert "these do not exist: 9:9" in text
        letters(server, "g", 1)
    client.close()


def test_encrypted_letters_and_logs_need_the_key(server: Server, tmp_path: Path) -> None:
    pair = write_pair(tmp_path, "k")
    crypto = {
        "cryptoKeyReaderClassName": "magnetar.client.NamedKeyReader",
        "cryptoKeyReaderConfig": {"publicKeys": {"k": pair.public.as_uri()}},
        "encryptionKeys": ["k"],
    }
    config = {
        "inputs": ["in-sealed"], "output": "out-sealed", "maxMessageRetries": 0, "deadLetterTopic": "sealed-letters",
        "logTopic": "sealed-log", "producerConfig": {"cryptoConfig": crypto}, "className": "sealed.process",
    }  # fmt: skip
    source = "import logging\n" + SOURCE.replace(
        "    if", '    logging.getLogger().warning("said of %s", text)\n    if', 1
    )
    client = pulsar.Client(server.service_url)
    with Functions(server.web_url) as functions:
        functions.create("sealed", source, config).raise_for_status()
        wait_for(lambda: functions.status("sealed")["running"], "running")
        client.create_producer("in-sealed").send(b"bad 1")
        key = ("--encryption-key-value", pair.private.as_uri())

        def found() -> list[dict[str, Any]]:
            listed: list[dict[str, Any]] = run(server, "list", "--name", "sealed", *key)
            return listed

        wait_for(lambda: len(found()) == 1, "letter")
        (letter,) = found()
        assert letter["content"] == "bad 1"
        assert run(server, "show", "--name", "sealed", *key, letter["id"])["content"] == "bad 1"
        for command in (("list",), ("show", letter["id"])):
            assert "add --encryption-key-value" in run(server, command[0], "--name", "sealed", *command[1:], code=1)
        assert "would be sent unencrypted" in run(server, "replay", "--name", "sealed", code=1)
        assert len(found()) == 1

        def logs(*flags: str) -> tuple[int, str]:
            out = io.StringIO()
            addresses = ("--admin-url", server.web_url, "--service-url", server.service_url)
            with redirect_stdout(out), redirect_stderr(out):
                code = main([*addresses, "functions", "logs", "--name", "sealed", *flags])
            return code, out.getvalue()

        wait_for(lambda: "said of bad 1" in logs("--from-topic", *key)[1], "line in the log topic")
        code, text = logs("--from-topic")
        assert code == 1
        assert "add --encryption-key-value with the URI of the log topic's private key" in text
        assert logs(*key)[0] == 1
    client.close()


def test_a_letter_larger_than_an_entry_is_sent_back_whole(server: Server) -> None:
    payload = b"bad " + bytes(6 * 1024 * 1024)
    client = pulsar.Client(server.service_url)
    inputs = {"inputs": ["in-large"], "output": "out-large", "maxMessageRetries": 0, "deadLetterTopic": "large-letters"}
    with Functions(server.web_url) as functions:
        functions.create("large", SOURCE, {"className": "large.process", **inputs}).raise_for_status()
        wait_for(lambda: functions.status("large")["running"], "running")
        client.create_producer("in-large", batching_enabled=False, chunking_enabled=True).send(payload)
        (letter,) = letters(server, "large", 1)
        reader = client.subscribe("large-elsewhere", "t", initial_position=pulsar.InitialPosition.Earliest)
        replayed = run(server, "replay", "--name", "large", "--to", "large-elsewhere")["replayed"]
        assert replayed == [letter["id"]]
        assert reader.receive(20_000).data() == payload
        letters(server, "large", 0)
    client.close()


def test_a_function_without_letters_is_told_how_to_get_some(server: Server, tmp_path: Path) -> None:
    with Functions(server.web_url) as functions:
        functions.create("plain", SOURCE, {"className": "plain.process", "inputs": ["plain-in"]}).raise_for_status()
    text = run(server, "list", "--name", "plain", code=1)
    assert "function plain has no dead-letter topic: set one with `functions update --name plain" in text


def test_one_letter_of_a_batch_is_replayed_and_the_others_stay(server: Server) -> None:
    """Instances send letters in batches."""
    client = pulsar.Client(server.service_url)
    with Functions(server.web_url) as functions:
        config = {"className": "many.process", "inputs": ["many-in"], "deadLetterTopic": "many", "maxMessageRetries": 0}
        functions.create("many", SOURCE, config).raise_for_status()
        wait_for(lambda: functions.status("many")["running"], "running")
        producer = client.create_producer("many-in", batching_enabled=True, batching_max_publish_delay_ms=200)
        for number in range(5):
            producer.send_async(f"bad {number}".encode(), lambda *_: None)
        producer.flush()
        found = letters(server, "many", 5)
        assert len({one["id"].rsplit(":", 2)[0] for one in found}) < 5, "they are in one entry"
        to = ("--to", "many-out")
        assert run(server, "replay", "--name", "many", found[1]["id"], *to)["replayed"] == [found[1]["id"]]
        left = [one["id"] for one in found if one is not found[1]]
        assert [one["id"] for one in letters(server, "many", 4)] == left
        assert run(server, "replay", "--name", "many", left[3], left[0], *to)["replayed"] == [left[0], left[3]]
        assert [one["id"] for one in letters(server, "many", 2)] == left[1:3]
        assert run(server, "replay", "--name", "many", *to)["replayed"] == left[1:3]
        letters(server, "many", 0)
    client.close()


def test_a_broker_that_takes_its_time_has_no_fewer_letters(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pulsar.Client(server.service_url)
    with Functions(server.web_url) as functions:
        config = {"className": "slow.process", "inputs": ["slow-in"], "deadLetterTopic": "slow", "maxMessageRetries": 0}
        functions.create("slow", SOURCE, config).raise_for_status()
        client.create_producer("slow-in").send(b"bad")
        letters(server, "slow", 1)
        monkeypatch.setattr("magnetar.cli.functions.letters.QUIET_S", 0.0)
        letters(server, "slow", 1)
        assert len(run(server, "replay", "--name", "slow", "--to", "slow-out")["replayed"]) == 1
        monkeypatch.setattr("magnetar.cli.functions.letters.FIRST_S", 1000.0)
        assert run(server, "list", "--name", "slow") == [], "at once"
    client.close()


SINK = """
from magnetar import Sink
from magnetar.api import RecordRefused

class Picky(Sink):
    def write(self, record):
        if record.value.startswith(b"bad"):
            raise RecordRefused("no " + record.value.decode())
"""


@pytest.mark.parametrize("topic", [None, "sink-letters"])
def test_letters_of_a_sink_are_listed_shown_and_sent_back(server: Server, tmp_path: Path, topic: str | None) -> None:
    """They are in the topic of its config, or in one for each input; one without letters is not created."""
    (tmp_path / "picky.py").write_text(SINK)
    name = f"picky{'-shared' * (topic is not None)}"
    inputs = [f"{name}-a", f"{name}-b", f"{name}-c"]
    flags = ("--dead-letter-topic", topic) if topic else ()
    code = ("--archive", str(tmp_path / "picky.py"), "--classname", "picky.Picky")
    addresses = ("--admin-url", server.web_url, "--service-url", server.service_url)
    assert main([*addresses, "sinks", "create", "--name", name, *code, "--inputs", ",".join(inputs), *flags]) == 0
    ours = ("--name", name)
    assert run(server, "list", *ours, group="sinks") == []
    client = pulsar.Client(server.service_url)
    for number, one in enumerate(inputs[:2]):
        producer = client.create_producer(one)
        producer.send(b"good")
        producer.send(f"bad {number}".encode(), partition_key="k", properties={"p": "v"})
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found[:] = run(server, "list", *ours, group="sinks")
        return len(found) == 2

    wait_for(look, "two letters")
    first, second = sorted(found, key=lambda one: one["content"])
    assert (first["content"], first["key"], first["properties"]) == ("bad 0", "k", {"p": "v"})
    assert first["topic"] == f"persistent://public/default/{inputs[0]}"
    assert first["exception"] == "no bad 0"
    assert run(server, "show", *ours, second["id"], group="sinks")["content"] == "bad 1"
    assert "these do not exist: 9:9" in run(server, "replay", *ours, "9:9", "--dry-run", code=1, group="sinks")
    reader = client.subscribe(f"{name}-out", "t", initial_position=pulsar.InitialPosition.Earliest)
    done = run(server, "replay", *ours, second["id"], "--to", f"{name}-out", group="sinks")
    assert done["replayed"] == [second["id"]]
    assert reader.receive(20_000).data() == b"bad 1"
    assert [one["id"] for one in run(server, "list", *ours, group="sinks")] == [first["id"]]
    assert run(server, "replay", *ours, "--to", f"{name}-out", group="sinks")["replayed"] == [first["id"]]
    assert run(server, "list", *ours, group="sinks") == []
    client.close()


def test_a_sink_without_letters_creates_no_topic(server: Server) -> None:
    """Looking for letters must not create the topics that would hold them."""
    addresses = ("--admin-url", server.web_url)
    config = ("--sink-type", "console", "--inputs", "quiet-in", "--name", "quiet", "--no-wait")
    assert main([*addresses, "sinks", "create", *config]) == 0
    assert run(server, "list", "--name", "quiet", group="sinks") == []
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*addresses, "-o", "json", "topics", "list", "public/default"]) == 0
    assert not [topic for topic in json.loads(out.getvalue()) if topic.endswith("quiet-DLQ")]
