"""`pulsar-admin` on both brokers, command by command: `make test-clients`.

The answers of Apache Pulsar 4.0.7 are recorded in tests/golden/pulsar-admin.jsonl. Our broker must give the same ones,
and a live Apache Pulsar must still give them.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path

import httpx
import pulsar
import pytest

from tests.clients import admin_answers, programs
from tests.clients.admin_answers import Answer, answer
from tests.clients.admin_differences import DIFFERENT
from tests.support.pulsar import BROKERS, Broker

pytestmark = pytest.mark.clients
PROGRAM_TIMEOUT_S = 1000.0
RECORD = "MAGNETAR_RECORD_ADMIN"
SCHEMA = {"type": "STRING", "schema": "", "properties": {}}


def _commands() -> list[tuple[str, bool]]:
    """Return each command, and whether only its shape counts."""
    text = admin_answers.COMMANDS.read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.removeprefix("~"), line.startswith("~")) for line in lines]


def _prepare(broker: Broker, tenant: str) -> dict[str, str]:
    """Create what the commands need; returns the names that they use."""
    ns = f"{tenant}/ns"
    names = {"tenant": tenant, "ns": ns, "topic": f"persistent://{ns}/t", "parts": f"persistent://{ns}/parts"}
    names |= {"empty": f"persistent://{ns}/empty", "other": f"other{tenant}"}
    names["broker"] = broker.web_url.partition("//")[2]
    with httpx.Client(base_url=f"{broker.web_url}/admin/v2", timeout=60) as http:
        info = {"adminRoles": ["admin"], "allowedClusters": ["standalone"]}
        http.put(f"/tenants/{tenant}", json=info).raise_for_status()
        http.put(f"/namespaces/{ns}").raise_for_status()
        http.put(f"/persistent/{ns}/empty").raise_for_status()
        http.put(f"/persistent/{ns}/parts/partitions", json=2).raise_for_status()
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    for name in ("topic", "parts", "empty"):  # Apache Pulsar deletes topics without subscriptions after a minute
        client.subscribe(names[name], "s").close()
    producer = client.create_producer(names["topic"], batching_enabled=False)
    for number in range(5):
        producer.send(f"m{number}".encode())
    client.close()
    return names


def _play(broker: Broker, directory: Path) -> dict[str, Answer]:
    """Return what each command answers; repeated ones are marked."""
    tenant = f"adm{uuid.uuid4().hex[:8]}"
    names = _prepare(broker, tenant)
    (directory / "schema.json").write_text(json.dumps(SCHEMA))
    (directory / "client.conf").write_text(f"webServiceUrl={broker.web_url}\nbrokerServiceUrl={broker.service_url}\n")
    names["schema"] = str(directory / "schema.json")
    commands = _commands()
    lines = [
        "\t".join((str(number), str(directory / "client.conf"), *command.format(**names).split(" ")))
        for number, (command, _) in enumerate(commands)
    ]
    done = subprocess.run(
        programs.pulsar_admin(),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
    )
    rows = [line.split("\t", 3) for line in done.stdout.splitlines() if line.count("\t") >= 3]
    assert len(rows) == len(commands), f"it ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}"
    stand_for = {tenant: "TENANT", f"other{tenant}": "OTHER", str(directory): "DIRECTORY"}
    for place, word in ((broker.web_url, "WEB"), (broker.service_url, "BROKER")):
        stand_for[place.partition("//")[2].rpartition(":")[2]] = word
    found: dict[str, Answer] = {}
    for (command, is_shape), (_, code, _, said) in zip(commands, rows, strict=True):
        key = command
        while key in found:
            key += " (again)"
        found[key] = answer(command, int(code), said, stand_for, is_shape=is_shape)
    return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", BROKERS)
def test_pulsar_admin_answers_as_recorded(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker = request.getfixturevalue("our_broker" if kind == "ours" else "apache_pulsar")
    found = _play(broker, tmp_path)
    if kind == "pulsar" and os.environ.get(RECORD):
        admin_answers.store(found)
    recorded = admin_answers.load()
    assert list(found) == list(recorded)
    wrong: list[str] = []
    for command, got in found.items():
        expected = recorded[command]
        if kind == "ours" and command in DIFFERENT:
            ours, why = DIFFERENT[command]
            wrong += [f"{command}: {one}, though {why}" for one in ours.differences(got)]
            if ours == expected:
                wrong.append(f"{command}: does not differ, though {why}")
        else:
            wrong += [f"{command}: {one}" for one in expected.differences(got)]
    assert not wrong, "\n".join(wrong)
