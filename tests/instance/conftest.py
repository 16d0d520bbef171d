"""Run a state store as a child process, and functions with state or with EFFECTIVELY_ONCE."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from magnetar.client.client import AsyncClient
from magnetar.runtime.interface import Runtime
from magnetar.state.client import TableClient

from tests.instance.stateful import Stateful
from tests.support.exact import ExactSpec, exact_spec_maker
from tests.support.instances import MakeSpec, any_runtime, client, make_spec, server, topic
from tests.support.servers import Server, running

__all__ = ["any_runtime", "client", "make_spec", "server", "topic"]  # fixtures of support.instances


@pytest.fixture(scope="module")
def state_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield server


@pytest.fixture
def state_url(state_store: Server) -> str:
    return str(state_store.addresses["stateStorageServiceUrl"])


@pytest.fixture
def tables(state_url: str) -> Iterator[TableClient]:
    client = TableClient(state_url)
    yield client
    client.close()


@pytest.fixture
async def stateful(
    client: AsyncClient,
    server: Server,
    tables: TableClient,
    make_spec: MakeSpec,
    any_runtime: Runtime,
    state_url: str,
    topic: str,
) -> AsyncIterator[Stateful]:
    """A function with its own state table, in each kind of runtime."""
    stateful = Stateful(client, server, tables, make_spec, any_runtime, state_url, topic)
    yield stateful
    for instance in stateful.instances:
        await instance.stop(30)
        assert instance.leftover() == ""


@pytest.fixture
def exact_spec(make_spec: MakeSpec, server: Server) -> ExactSpec:
    """Return a function that creates specs of EFFECTIVELY_ONCE functions without a state store."""
    return exact_spec_maker(make_spec, server)


@pytest.fixture
def committing_spec(make_spec: MakeSpec, server: Server, state_url: str) -> ExactSpec:
    """Return a function that creates specs of EFFECTIVELY_ONCE functions with a state store."""
    return exact_spec_maker(make_spec, server, state_url)
