"""Official clients reach a broker through a router that translates its address, by `advertisedListeners`.

The broker is asked by its own port alone for the first lookup; everything else must come through the router, whose
connections the broker's statistics show. Only our broker is tested: the load manager of a standalone Apache Pulsar
ignores listeners.
"""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.clients import programs
from tests.support.forwarder import Forwarder
from tests.support.ports import Reserved
from tests.support.pulsar import Broker
from tests.support.servers import server

pytestmark = pytest.mark.clients
TIMEOUT_S = 90.0


@dataclass
class Routed:
    """A broker with a router in front."""

    broker: Broker
    router: Forwarder


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    directory = tmp_path_factory.mktemp("listeners")
    broker = server("broker", directory, "--config", str(directory / "broker.conf"))
    broker._ports = Reserved(2)
    inside = broker._ports.numbers[0]
    router = Forwarder(("127.0.0.1", inside))
    (directory / "broker.conf").write_text("\n".join(settings(inside, router.port)))
    with router.forwarding():
        try:
            broker.start()
            yield Routed(broker, router)
        finally:
            broker.stop()


def settings(inside: int, outside: int) -> list[str]:
    listeners = f"internal:pulsar://127.0.0.1:{inside},external:pulsar://127.0.0.1:{outside}"
    return [f"advertisedListeners={listeners}", "internalListenerName=internal"]


@contextlib.contextmanager
def playing(client: str, url: str, listener: str, topic: str) -> Iterator[str]:
    """Run a client's program, and give its first line while it is connected."""
    command = [*programs.of_client(client, "listener"), url, listener, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
            process.stdin.close()
            process.wait(TIMEOUT_S)
        finally:
            process.kill()


def ports_of(broker: Broker, topic: str) -> set[int]:
    """Return the ports from which producers and consumers of a topic connect."""
    stats = httpx.get(f"{broker.web_url}/admin/v2/{topic.replace('://', '/')}/stats", timeout=30).json()
    peers = [*stats["publishers"], *(one for s in stats["subscriptions"].values() for one in s["consumers"])]
    assert len(peers) == 2, stats
    return {int(peer["address"].rpartition(":")[2]) for peer in peers}


@pytest.mark.parametrize("first", ["router", "broker"])
@pytest.mark.parametrize("client", programs.CLIENTS)
def test_listener_that_is_named_is_used_for_everything(routed: Routed, client: str, first: str) -> None:
    """Whoever answers the lookup, the addresses that it names are the listener's."""
    url = routed.broker.service_url if first == "broker" else f"pulsar://127.0.0.1:{routed.router.port}"
    topic = f"persistent://public/default/{client}-{uuid.uuid4().hex[:8]}"
    with playing(client, url, "external", topic) as said:
        assert said == "hello"
        assert ports_of(routed.broker, topic) <= routed.router.inner_ports


@pytest.mark.parametrize("client", programs.CLIENTS)
def test_without_a_name_the_internal_listener_is_used(routed: Routed, client: str) -> None:
    topic = f"persistent://public/default/{client}-{uuid.uuid4().hex[:8]}"
    with playing(client, f"pulsar://127.0.0.1:{routed.router.port}", "", topic) as said:
        assert said == "hello"
        assert ports_of(routed.broker, topic).isdisjoint(routed.router.inner_ports)


@pytest.mark.parametrize("client", programs.CLIENTS)
def test_listener_that_the_broker_does_not_have_is_refused(routed: Routed, client: str) -> None:
    topic = f"persistent://public/default/{client}-{uuid.uuid4().hex[:8]}"
    with playing(client, routed.broker.service_url, "nowhere", topic) as said:
        assert said.startswith("error"), said
