"""Official clients at a broker that advertises other addresses than its own, as behind NAT: `make test-clients`.

Each advertised listener is a port that passes connections on to the broker and counts them, so a test sees which
address clients were sent to. `advertisedAddress` is a name for the address that the broker listens on.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients import programs
from tests.support.forwarder import Forwarder
from tests.support.pulsar import Broker, of_environment, started
from tests.support.servers import running

pytestmark = pytest.mark.clients
PROGRAM_TIMEOUT_S = 120.0
ADVERTISED_ADDRESS = "localhost"


@dataclass
class Site:
    """A broker with two listeners."""

    broker: Broker
    internal: Forwarder
    external: Forwarder


@pytest.fixture(scope="module")
def site(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with contextlib.ExitStack() as opened:
        internal, external = (opened.enter_context(Forwarder().running()) for _ in range(2))
        settings = {
            "advertisedAddress": ADVERTISED_ADDRESS,
            "advertisedListeners": ",".join(
                f"{name}:pulsar://{ADVERTISED_ADDRESS}:{one.port}"
                for name, one in (("internal", internal), ("external", external))
            ),
            "internalListenerName": "internal",
        }
        broker = _broker(broker_kind, tmp_path_factory.mktemp("listeners"), settings, (internal, external), opened)
        yield Site(broker, internal, external)


def _broker(
    kind: str,
    directory: Path,
    settings: dict[str, str],
    forwarders: tuple[Forwarder, Forwarder],
    opened: contextlib.ExitStack,
) -> Broker:
    if kind == "ours":
        file = directory / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        ours = opened.enter_context(running("broker", directory / "broker", "--config", str(file)))
        port = int(ours.service_url.rpartition(":")[2])
        for forwarder in forwarders:
            forwarder.target = port
        return ours
    pulsar = of_environment(directory)
    if pulsar is None:
        pytest.skip("no Apache Pulsar: make test-clients PULSAR=…")
    pulsar.require_starter("has settings of its own")
    port = int(pulsar.choose_ports()[0])
    for forwarder in forwarders:  # before the start: Apache Pulsar's own client uses the advertised address
        forwarder.target = port
    pulsar.flags = ()
    pulsar.settings = tuple(f"{key}={value}" for key, value in settings.items())
    opened.enter_context(started(pulsar))
    return pulsar


def _play(client: str, site: Site, listener: str) -> dict[str, Any]:
    """Return what a client's program writes of a listener."""
    topic = f"persistent://public/default/{client}-{uuid.uuid4().hex[:8]}"
    command = [*programs.of_client(client, "listener"), site.broker.service_url, site.broker.web_url, topic, listener]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    assert done.returncode == 0, f"{client} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}"
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize("client", programs.CLIENTS)
def test_clients_connect_to_the_address_of_the_listener_that_they_name(client: str, site: Site) -> None:
    before = site.external.count
    assert _play(client, site, "external")["outcome"] == "m0"
    assert site.external.count > before


@pytest.mark.parametrize("client", programs.CLIENTS)
def test_lookups_without_a_listener_return_the_internal_one_and_the_advertised_address(client: str, site: Site) -> None:
    seen = _play(client, site, "internal")
    web_port = site.broker.web_url.rpartition(":")[2]
    assert seen == {
        "outcome": "m0",
        "lookup": f"pulsar://{ADVERTISED_ADDRESS}:{site.internal.port}",
        "brokers": [f"{ADVERTISED_ADDRESS}:{web_port}"],
    }


@pytest.mark.parametrize("client", programs.CLIENTS)
def test_an_unknown_listener_is_refused(client: str, site: Site) -> None:
    assert _play(client, site, "absent")["outcome"] == "refused"
