"""The benchmark of TLS and tokens: what a share is, and that each posture is secured as it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pulsar
import pytest
from magnetar.client import AsyncClient, ClientConfig
from magnetar.errors import MagnetarError

from benchmarks.figure import Table
from benchmarks.load import official
from benchmarks.plan import Plan
from benchmarks.postures import PLAIN, POSTURES, SECURED, Posture, Site, sites
from benchmarks.real_input import OwnInput
from benchmarks.secured_rates import Rate, figures, in_turn, processed

TOKEN, TLS, BOTH = SECURED
CHECKED = (PLAIN, BOTH)
OUTPUTS = 300_000
"""Enough for some looks at how many there are."""


def test_share_is_the_median_of_those_within_a_repeat() -> None:
    plain = [Rate(100, 1.0), Rate(200, 1.0), Rate(50, 1.0)]
    halves = [Rate(one.per_s / 2, 3.0) for one in plain]
    rates = {PLAIN: plain, TOKEN: plain, TLS: halves, BOTH: [*halves[:2], Rate(500, 3.0)]}
    found = list(figures("it", rates, Table.OWN))
    assert [(one.ours, one.verdict) for one in found] == [(1, "met"), (0.5, "missed by 29%"), (0.5, "missed by 29%")]
    assert found[1].name == "it: TLS over plain"
    assert found[1].note == "50 beside 100 messages/s; broker 3.00 beside 1.00 µs CPU a message"


def test_each_repeat_measures_every_posture_and_begins_with_another_one() -> None:
    order: list[tuple[int, Posture]] = []

    def measure(posture: Posture, turn: int) -> Rate:
        order.append((turn, posture))
        return Rate(turn, 0.0)

    rates = in_turn(5, measure)
    for turn in range(5):
        measured = [posture for number, posture in order if number == turn]
        assert measured[0] == POSTURES[turn % 4]
        assert set(measured) == set(POSTURES)
    assert all([rate.per_s for rate in rates[posture]] == [0, 1, 2, 3, 4] for posture in POSTURES)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Posture, Site]]:
    plan = Plan(0.1, 1, tmp_path_factory.mktemp("postures"))
    with sites(plan, CHECKED, with_functions=True) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("posture", CHECKED, ids=lambda posture: posture.name)
def test_posture_lets_in_who_has_what_it_asks_for_and_nobody_else(found: dict[Posture, Site], posture: Posture) -> None:
    site = found[posture]
    assert site.service_url.startswith("pulsar+ssl://" if posture.has_tls else "pulsar://")
    assert ("brokerServiceUrlTls" in site.broker.addresses) == posture.has_tls
    _send_by_both(site, site.client_settings(), site.official_settings())
    if posture.has_token:
        wrong = {"auth_plugin": "token", "auth_params": "token:x.y.z"}
        _refused(site, site.client_settings() | wrong, {"authentication": pulsar.AuthenticationToken("x.y.z")})
        headers = {"Authorization": "Bearer x.y.z", "X-Pulsar-Auth-Method-Name": "token"}
        assert httpx.get(f"{site.broker.web_url}/admin/v2/tenants", headers=headers).status_code == 401
        assert httpx.get(f"{site.broker.web_url}/admin/v2/tenants", headers=site.headers).status_code == 200
    if posture.has_tls:
        untrusting = {name: value for name, value in site.client_settings().items() if not name.startswith("tls")}
        _refused(site, untrusting, {"tls_trust_certs_file_path": ""})


def _send_by_both(site: Site, settings: dict[str, Any], official_settings: dict[str, Any]) -> None:
    asyncio.run(_send(site, settings))
    client = official(site.service_url, **official_settings)
    try:
        client.create_producer("t").send(b"x")
    finally:
        client.close()


async def _send(site: Site, settings: dict[str, Any]) -> None:
    async with AsyncClient(site.service_url, ClientConfig(operation_timeout_s=5, **settings)) as client:
        await (await client.create_producer("t")).send(b"x")


def _refused(site: Site, settings: dict[str, Any], official_settings: dict[str, Any]) -> None:
    with pytest.raises(MagnetarError):
        asyncio.run(_send(site, settings))
    client = official(site.service_url, **(site.official_settings() | official_settings), operation_timeout_seconds=2)
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("t")
    finally:
        client.close()


@pytest.mark.slow
@pytest.mark.parametrize("posture", CHECKED, ids=lambda posture: posture.name)
def test_functions_work_through_what_their_posture_asks_for(found: dict[Posture, Site], posture: Posture) -> None:
    site = found[posture]
    assert site.admin_url.startswith("https://" if posture.has_tls else "http://")
    if posture.has_token:
        assert site.worker is not None
        assert httpx.get(f"{site.worker.worker_url}/admin/v3/functions/public/default").status_code == 401
    assert processed(site, OwnInput(1000), OUTPUTS, "checked").per_s > 0
