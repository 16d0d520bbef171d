"""Official Java, Go and Python clients at a closed broker, ours and an Apache Pulsar: `make test-clients`.

Each program plays all cases of `secured_cases.py` in one process on one broker; what it wrote is compared one by one.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping

import httpx
import pytest

from tests.clients import programs
from tests.clients.secured_cases import CASES, PATIENCE_S, PUBLIC_KEY_CASES
from tests.clients.secured_site import Site

pytestmark = pytest.mark.clients
PROGRAM_TIMEOUT_S = 180.0
LOOK_S = 0.2
MISSING = re.compile("TopicNotFound|NotFoundException|TopicDoesNotExist")
"""How clients name a topic that does not exist."""
RENEWED = "token_renewed"
Observed = dict[tuple[str, str, bool], dict[str, list[str]]]


@contextlib.contextmanager
def _watching(site: Site, topic: str) -> Iterator[set[str]]:
    """Collect the addresses from which somebody publishes on a topic."""
    seen: set[str] = set()
    is_over = threading.Event()
    headers = {"authorization": f"Bearer {site.super_token()}"}
    url = f"http://{site.addresses['web']}/admin/v2/{topic.replace('://', '/')}/stats"

    def look() -> None:
        with httpx.Client(headers=headers, timeout=30) as web:
            while not is_over.wait(LOOK_S):
                answer = web.get(url)
                if answer.is_success:
                    seen.update(one["address"] for one in answer.json()["publishers"])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def _play(client: str, site: Site) -> dict[str, list[str]]:
    """Return what a program says of each case: what came of it, the seconds, and what the client said."""
    cases = PUBLIC_KEY_CASES if site.is_public else CASES
    program = programs.of_client(client, "secured")
    described = site.described(cases, f"{client}-{uuid.uuid4().hex[:8]}")
    given = "".join(json.dumps(one) + "\n" for one in described)
    topic = next((one["topic"] for one in described if one["name"] == RENEWED), "persistent://sec/open/none")
    with _watching(site, topic) as addresses:
        done = subprocess.run(program, input=given, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    seen = {name: found for name, *found in rows}
    assert set(seen) == set(cases), f"{client} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}"
    if not site.is_public:
        assert len(addresses) == 1, f"the token was not renewed on the connection that was there: {addresses}"
    return seen


def _is_as_expected(client: str, kind: str, case: str, seen: Mapping[str, list[str]]) -> None:
    expected = {**CASES, **PUBLIC_KEY_CASES}[case]
    got, took_s, said = seen[case]
    if MISSING.search(f"{got} {said}"):
        got = "missing"
    assert got in expected.outcomes(client, is_pulsar=kind == "pulsar"), said
    assert float(took_s) < PATIENCE_S + expected.seconds, said


@pytest.fixture(scope="module")
def observed() -> Observed:
    """What each program wrote on each broker, by case; filled when it is asked for."""
    return {}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("client", programs.CLIENTS)
def test_an_official_client_is_let_in_or_refused(
    broker_kind: str,
    client: str,
    case: str,
    secret_site: Site,
    observed: dict[tuple[str, str, bool], dict[str, list[str]]],
) -> None:
    if (broker_kind, client, False) not in observed:
        observed[broker_kind, client, False] = _play(client, secret_site)
    _is_as_expected(client, broker_kind, case, observed[broker_kind, client, False])


@pytest.mark.parametrize("case", PUBLIC_KEY_CASES)
@pytest.mark.parametrize("client", programs.CLIENTS)
def test_an_official_client_is_let_in_or_refused_by_a_public_key(
    broker_kind: str,
    client: str,
    case: str,
    public_site: Site,
    observed: dict[tuple[str, str, bool], dict[str, list[str]]],
) -> None:
    if (broker_kind, client, True) not in observed:
        observed[broker_kind, client, True] = _play(client, public_site)
    _is_as_expected(client, broker_kind, case, observed[broker_kind, client, True])
