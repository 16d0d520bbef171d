"""Brokers shared by all client tests: an open one of ours, and secured ones for each kind of key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.secured_brokers import open_site
from tests.clients.secured_site import Site
from tests.support.pulsar import BROKERS, Broker
from tests.support.servers import running


@pytest.fixture(scope="package")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running("broker", tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture(scope="package", params=BROKERS)
def broker_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="package")
def secret_site(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(broker_kind, tmp_path_factory.mktemp("secret"), is_public=False) as site:
        yield site


@pytest.fixture(scope="package")
def public_site(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(broker_kind, tmp_path_factory.mktemp("public"), is_public=True) as site:
        yield site
