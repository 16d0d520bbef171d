"""Programs on the official Java, Go and Python clients, on our broker and on an Apache Pulsar: `make test-clients`.

Each program plays all its scenarios in one process on one broker; what it wrote is compared one by one. What a program
or a client lacks, and what a client observes otherwise than the others, is listed here with the reason. The brokers do
not differ in any of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.clients import programs
from tests.clients.playing import play
from tests.clients.scenarios import EXPECTED
from tests.support.pulsar import BROKERS, ApachePulsar

pytestmark = pytest.mark.clients

NO_ADMIN = "the Python client has no admin library"
ABSENT: Mapping[str, Mapping[str, str]] = {
    "java": {},
    "go": {
        "ack_timeout": "the Go client has none",
        "schemas": "played by Java's client, and by Python's in tests/official",
    },
    "python": {
        "access_mode": "its errors do not tell a fenced producer from a busy one",
        "retry_letter": "the Python client has none",
        "schemas": "played in tests/official",
        **dict.fromkeys(("compacted", "deduplication", "partitioned", "unsubscribe", "administration"), NO_ADMIN),
    },
}
"""Scenarios that a program does not have."""

DIFFERENT: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "go": {
        "seek": (
            [["m0"], ["m6"], ["m6"], ["m10"]],
            "after a seek to a message this client drops what comes from before it, whatever time it seeks to next",
        ),
    },
}
"""What a client observes on either broker in the place of what is expected, and why."""


@pytest.fixture(scope="module")
def observed() -> dict[tuple[str, str], dict[str, str]]:
    """What each program wrote on each broker, by scenario; filled when it is asked for."""
    return {}


@pytest.mark.parametrize("scenario", EXPECTED)
@pytest.mark.parametrize("client", programs.CLIENTS)
@pytest.mark.parametrize("kind", BROKERS)
def test_an_official_client_observes_what_it_must(
    kind: str,
    client: str,
    scenario: str,
    observed: dict[tuple[str, str], dict[str, str]],
    request: pytest.FixtureRequest,
) -> None:
    if scenario in ABSENT[client]:
        pytest.skip(ABSENT[client][scenario])
    if (kind, scenario) == ("pulsar", "batch_index"):
        pulsar: ApachePulsar = request.getfixturevalue("apache_pulsar")
        if not pulsar.acknowledges_inside_batches():
            pytest.skip("this Apache Pulsar was started without acknowledgmentAtBatchIndexLevelEnabled")
    if (kind, client) not in observed:
        broker = request.getfixturevalue("our_broker" if kind == "ours" else "apache_pulsar")
        observed[kind, client] = play(
            "scenarios", client, broker, [name for name in EXPECTED if name not in ABSENT[client]]
        )
    seen = observed[kind, client][scenario]
    assert not seen.startswith("error "), seen
    got: Any = json.loads(seen)
    expected, why = DIFFERENT.get(client, {}).get(scenario, (EXPECTED[scenario], ""))
    assert got == expected, why
