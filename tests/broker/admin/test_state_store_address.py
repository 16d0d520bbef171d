"""The address of a state store beside the broker, as clients find it in the internal configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from magnetar.security.authentication.settings import ServerSecurity

from .conftest import RunningBroker

PATH = "/admin/v2/brokers/internal-configuration"


async def test_a_broker_without_a_state_store_announces_none(broker: RunningBroker) -> None:
    found = (await broker.http.get(PATH)).json()
    assert not {"stateStorageServiceUrl", "brokerServiceUrl"} & found.keys()


async def test_a_starting_state_store_is_announced_once_it_serves(broker: RunningBroker) -> None:
    urls: list[str] = []
    broker.service.state_store_url = lambda: urls[0] if urls else None
    answer = await broker.http.get(PATH)
    assert (answer.status_code, answer.json()["reason"]) == (503, "the state store is starting: retry in a few seconds")
    urls.append("bk://127.0.0.1:4181")
    found = (await broker.http.get(PATH)).json()
    assert found["stateStorageServiceUrl"] == "bk://127.0.0.1:4181"
    assert found["brokerServiceUrl"] == broker.service.broker_url


@pytest.mark.parametrize(("is_secured", "host"), [(False, "localhost"), (True, "127.0.0.1")])
async def test_a_client_of_all_addresses_gets_the_host_that_it_has_reached(
    broker: RunningBroker, is_secured: bool, host: str
) -> None:
    """With authentication the state store of a standalone listens on loopback only, whatever the broker does."""
    security = ServerSecurity(enabled=is_secured, providers=("token",), token_secret_key="data:,x")
    config = replace(broker.service.config, host="0.0.0.0", security=security)
    broker.service.config = broker.service.namespaces.config = config  # policies that are read later bring it back
    broker.service.state_store_url = lambda: "bk://127.0.0.1:4181"
    found = (await broker.http.get(PATH, headers={"Host": "localhost:8080"})).json()
    assert found["stateStorageServiceUrl"] == f"bk://{host}:4181"
    assert found["brokerServiceUrl"].startswith("pulsar://localhost:")
