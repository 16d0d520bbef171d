"""Functions over REST whose inputs are patterns, and whose secrets are shown by their places only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from magnetar.client.config import ConsumerConfig, ProducerConfig

from tests.support.eventually import until
from tests.support.exact import all_messages
from tests.support.function_topics import send_batches
from tests.support.keys import write_pair
from tests.worker.conftest import Cluster

SHOUT = "def process(text):\n    return text + '!'\n"


async def test_a_pattern_is_prepared_followed_and_cleaned_up(cluster: Cluster) -> None:
    base, out = cluster.topic("pattern-in"), cluster.topic("pattern-out")
    await send_batches(cluster.client, f"{base}-a", [[b"before"]])
    answer = await cluster.create("shout", SHOUT, topicsPattern=f"{base}-.*", output=out, runtimeEnv="thread")
    assert answer.status_code == 204, answer.text
    await send_batches(cluster.client, f"{base}-a", [[b"a"]])  # whether an instance runs by now or not
    await send_batches(cluster.client, f"{base}-b", [[b"b"]])

    async def has_made() -> bool:
        return sorted(await all_messages(cluster.client, out)) == [b"a!", b"b!"]

    await until(has_made)
    shown = (await cluster.http.get("/admin/v3/functions/public/default/shout")).json()
    assert shown["inputSpecs"][f"{base}-.*"]["regexPattern"] is True
    answer = await cluster.http.delete("/admin/v3/functions/public/default/shout")
    assert answer.status_code == 204, answer.text
    async with httpx.AsyncClient(base_url=cluster.broker.web_url, timeout=60) as http:
        for name in "ab":
            found = await http.get("/admin/v2/" + f"{base}-{name}".replace("://", "/") + "/subscriptions")
            assert "public/default/shout" not in found.json()


async def test_a_trigger_of_a_pattern_asks_for_the_topic(cluster: Cluster) -> None:
    base, out = cluster.topic("asked-in"), cluster.topic("asked-out")
    path = "/admin/v3/functions/public/default/asked"
    answer = await cluster.create("asked", SHOUT, topicsPattern=f"{base}-.*", output=out, runtimeEnv="thread")
    assert answer.status_code == 204, answer.text
    answer = await cluster.http.post(f"{path}/trigger", files={"data": (None, b"x")})
    assert answer.status_code == 400
    assert f"reads the pattern {base}-.*: set topic to one of its input topics" in answer.json()["reason"]
    answer = await cluster.http.post(f"{path}/trigger", files={"data": (None, b"x"), "topic": (None, out.encode())})
    assert (answer.status_code, "unidentified topic" in answer.text) == (400, True)
    topic = f"{base}-new".encode()  # which joins by this
    answer = await cluster.http.post(f"{path}/trigger", files={"data": (None, b"x"), "topic": (None, topic)})
    assert (answer.status_code, answer.text) == (200, "x!")
    assert (await cluster.http.delete(path)).status_code == 204


async def test_cursors_of_a_pattern_are_reset_by_topic(cluster: Cluster) -> None:
    base, out = cluster.topic("reset-in"), cluster.topic("reset-out")
    path = "/admin/v3/functions/public/default/again"
    async with httpx.AsyncClient(base_url=cluster.broker.web_url, timeout=60) as http:
        parts = "/admin/v2/" + f"{base}-p".replace("://", "/") + "/partitions"
        (await http.put(parts, json=2)).raise_for_status()
    await send_batches(cluster.client, f"{base}-a", [[b"before"]])
    answer = await cluster.create("again", SHOUT, topicsPattern=f"{base}-.*", output=out, runtimeEnv="thread")
    assert answer.status_code == 204, answer.text
    producer = await cluster.client.create_producer(f"{base}-a")
    position = await producer.send(b"a")
    for number in range(2):
        await send_batches(cluster.client, f"{base}-p-partition-{number}", [[f"p{number}".encode()]])
    expected = [b"a!", b"p0!", b"p1!"]

    async def has_made() -> bool:
        return sorted(await all_messages(cluster.client, out)) == sorted(expected)

    await until(has_made)
    there = {"messageId": {"ledgerId": position.ledger_id, "entryId": position.entry_id}}
    everything = {"messageId": {"ledgerId": -1, "entryId": -1}}
    for target, reason in (
        (there, f"could belong to any topic that matches {base}-.*: specify the input (topic) or reset by time"),
        ({**there, "topic": out}, f"{out} is not an input of the function: expected {base}-.*"),
        ({**there, "topic": f"{base}-p"}, "could belong to any of 2 topics or partitions"),
    ):
        answer = await cluster.http.post(f"{path}/reset-cursor", json=target)
        assert (answer.status_code, reason in answer.json()["reason"]) == (400, True), answer.text
    for target, more in (
        ({**there, "topic": f"{base}-a"}, [b"a!"]),
        ({**everything, "topic": f"{base}-p"}, [b"p0!", b"p1!"]),
        (everything, [b"before!", b"a!", b"p0!", b"p1!"]),
    ):
        answer = await cluster.http.post(f"{path}/reset-cursor", json=target)
        assert answer.status_code == 204, answer.text
        expected += more
        await until(has_made)
    assert (await cluster.http.delete(path)).status_code == 204


async def test_a_pattern_that_cannot_be_is_refused(cluster: Cluster) -> None:
    for pattern, reason in (
        ("a/b/(", "invalid topicsPattern a/b/(: "),
        ("a/b/(?=x)y", "invalid topicsPattern a/b/(?=x)y: "),
        ("a/.*/c", "tenant and namespace must be literal names"),
        ("persistent://public/default/out.*", "the output of the function"),
    ):
        answer = await cluster.create("bad", SHOUT, topicsPattern=pattern, output=cluster.topic("out"))
        assert answer.status_code == 400
        assert reason in answer.json()["reason"], answer.text


async def test_secrets_are_shown_by_their_places_and_kept(cluster: Cluster) -> None:
    path = "/admin/v3/functions/public/default/secretive"
    secrets = {"text": "the secret", "env": {"env": "NAME"}, "odd": {"path": "p", "token": "hidden too"}}
    code = "def process(text, context):\n    return str(context.get_secret('text'))\n"
    topics: dict[str, Any] = {"inputs": [cluster.topic("secrets-in")], "output": cluster.topic("secrets-out")}
    answer = await cluster.create("secretive", code, secrets=secrets, runtimeEnv="thread", **topics)
    assert answer.status_code == 204, answer.text
    shown = (await cluster.http.get(path)).json()["secrets"]
    assert shown == {"text": "***", "env": {"env": "NAME"}, "odd": {"path": "p", "token": "***"}}
    answer = await cluster.send("PUT", "secretive", {}, secrets={**shown, "more": {"file": "f"}})
    assert answer.status_code == 204, answer.text
    await send_batches(cluster.client, topics["inputs"][0], [[b"x"]])

    async def has_made() -> bool:
        return await all_messages(cluster.client, topics["output"]) == [b"the secret"]

    await until(has_made)
    refused = await cluster.send("PUT", "secretive", {}, secrets={"new": "***"})
    assert refused.status_code == 400
    assert (
        "secrets.new is ***, which keeps the current value, but no value is set: set a value"
        in refused.json()["reason"]
    )
    assert (await cluster.http.delete(path)).status_code == 204


async def test_an_encrypted_function_is_created_with_its_keys_and_shows_where_they_are(
    cluster: Cluster, tmp_path: Path
) -> None:
    pair, other = write_pair(tmp_path, "one"), write_pair(tmp_path, "other")
    source, sink = cluster.topic("in"), cluster.topic("out")
    reading = {"cryptoKeyReaderClassName": "pulsar.CryptoKeyReader", "cryptoKeyReaderConfig": pair.paths}
    writing = {
        "cryptoKeyReaderClassName": "magnetar.client.NamedKeyReader",
        "cryptoKeyReaderConfig": {"publicKeys": {"k": f"file://{other.public}"}},
        "encryptionKeys": ["k"],
    }
    answer = await cluster.create(
        "secret",
        "def process(text):\n    return text + '!'\n",
        inputSpecs={source: {"cryptoConfig": reading}},
        output=sink,
        producerConfig={"cryptoConfig": writing},
    )
    assert (answer.status_code, answer.content) == (204, b"")
    shown = await cluster.get("secret")
    assert shown["producerConfig"]["cryptoConfig"].items() >= writing.items()
    assert shown["inputSpecs"][source]["cryptoConfig"].items() >= reading.items()
    sending = ProducerConfig(encryption_keys=["k"], crypto_key_reader=pair.reader)
    receiving = ConsumerConfig(initial_position="Earliest", crypto_key_reader=other.reader)
    consumer = await cluster.client.subscribe(sink, "test", receiving)
    producer = await cluster.client.create_producer(source, sending)
    await producer.send(b"hello")
    assert (await consumer.receive(30)).data == b"hello!"
    refused = await cluster.http.post(
        "/admin/v3/functions/public/default/secret/trigger", files={"data": (None, b"x"), "topic": (None, source)}
    )
    assert refused.status_code == 400
    assert "outputs of secret are encrypted, so the worker cannot return the result" in refused.text
