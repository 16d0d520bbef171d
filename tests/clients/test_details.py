"""Details of Apache Pulsar by the official Java, Go and Python clients, on both brokers: `make test-clients`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.clients import programs
from tests.clients.details import EXPECTED
from tests.clients.playing import play
from tests.support.pulsar import BROKERS

pytestmark = pytest.mark.clients

ABSENT: Mapping[str, Mapping[str, str]] = {
    "java": {},
    "go": dict.fromkeys(
        ("resource_groups", "subscription_properties"), "this version of the Go admin library has none"
    ),
    "python": {"non_durable": "the Python client has no non-durable subscriptions; its readers are in scenarios.py"},
}
"""Details that a program does not have."""

DIFFERENT: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "go": {"anti_affinity": ([True, ""], "this client does not name the tenant, which Apache Pulsar needs for a list")},
    "python": {"largest_message": ([11, True], "this client counts its chunk of the frame differently")},
}
"""What a client observes on both brokers instead of what is expected, and why."""


@pytest.fixture(scope="module")
def observed() -> dict[tuple[str, str], dict[str, str]]:
    """What each program wrote on each broker, by detail; filled as needed."""
    return {}


@pytest.mark.parametrize("detail", EXPECTED)
@pytest.mark.parametrize("client", programs.CLIENTS)
@pytest.mark.parametrize("kind", BROKERS)
def test_an_official_client_observes_the_detail(
    kind: str,
    client: str,
    detail: str,
    observed: dict[tuple[str, str], dict[str, str]],
    request: pytest.FixtureRequest,
) -> None:
    if detail in ABSENT[client]:
        pytest.skip(ABSENT[client][detail])
    if (kind, client) not in observed:
        broker = request.getfixturevalue("our_broker" if kind == "ours" else "apache_pulsar")
        observed[kind, client] = play(
            "details", client, broker, [name for name in EXPECTED if name not in ABSENT[client]]
        )
    seen = observed[kind, client][detail]
    assert not seen.startswith("error "), seen
    expected, why = DIFFERENT.get(client, {}).get(detail, (EXPECTED[detail], ""))
    assert json.loads(seen) == expected, why
