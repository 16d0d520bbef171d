"""One line in the audit log for each request that was refused or changed something, and no line by somebody else."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.security.audit import CLIENTS_MAX, LOGGER, PERIOD_S, REFUSALS_MAX, REFUSED, AuditLimit, line, record
from magnetar.security.roles import Roles

from tests.broker.admin.conftest import RunningBroker, broker, storage_config
from tests.broker.raw import Raw
from tests.security.secured import make_golden_world, secured

__all__ = ["broker", "storage_config"]
TOPIC = "persistent://sec/ns/t"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


@given(st.text(), st.text(), st.text())
def test_a_line_is_one_line_whatever_the_names_are(role: str, original: str, resource: str) -> None:
    written = line(Roles(role, original), "127.0.0.1:1", "GET", resource, "401")
    assert written.isprintable()
    unescaped = written.replace("\\\\", "").replace('\\"', "")
    assert unescaped.count('"') == 12
    assert len(written) < 13 * 1100 * 3


def test_refusals_of_one_client_are_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    limit = AuditLimit(lambda: now_s)
    logger = logging.getLogger(LOGGER)
    caplog.set_level(logging.INFO, LOGGER)
    logger.addFilter(limit)
    try:
        for number in range(REFUSALS_MAX + 7):
            record(Roles("ann"), "10.0.0.1:1", "GET", f"/{number}", "403")
            record(Roles(None), f"10.0.0.2:{number}", "GET", f"/{number}", "401")
            record(Roles("ann"), "10.0.0.1:1", "PUT", f"/{number}", "204")
        told = lines(caplog)
        assert [sum(text in one for one in told) for text in ('"403"', '"401"', '"204"')] == [
            REFUSALS_MAX, REFUSALS_MAX, REFUSALS_MAX + 7,
        ]  # fmt: skip
        caplog.clear()
        record(Roles("bob"), "10.0.0.1:1", "SUBSCRIBE", "t", REFUSED)
        now_s = PERIOD_S
        for _ in range(2):
            record(Roles("ann"), "10.0.0.1:1", "GET", "/", "404")
        told = lines(caplog)
        assert ["left_out" in one for one in told] == [False, True, False]
        assert told[1].endswith('outcome="404" left_out=7')
    finally:
        logger.removeFilter(limit)


def test_clients_that_are_counted_are_bounded() -> None:
    limit = AuditLimit(lambda: 0.0)
    for number in range(CLIENTS_MAX + 5):
        limit.filter(logging.makeLogRecord({"refused_client": number}))
    assert len(limit._clients) == CLIENTS_MAX


@pytest.mark.slow
async def test_what_is_refused_or_changes_something_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with secured(tmp_path) as secure:
        await make_golden_world(secure)
        caplog.clear()
        stats = "/admin/v2/persistent/sec/ns/t/stats"
        await secure.call("consumer", "GET", stats)
        assert lines(caplog) == []
        await secure.call("stranger", "GET", stats)
        await secure.call("proxy", "DELETE", "/admin/v2/tenants/sec%0Ax", original='bo"b')
        await secure.call("tenantadmin", "PUT", "/admin/v2/namespaces/sec/new")
        raw = await secure.connect("producer")
        for topic in (TOPIC, f"{TOPIC}-new"):
            await raw.request("PRODUCER", topic=topic, producer_id=len(topic), request_id=1)
        await raw.request("SUBSCRIBE", topic=TOPIC, subscription="s", subType=0, consumer_id=1, request_id=2)
        await raw.close()
        await secure.send("GET", f"{stats}%0A", {})
        stranger = await Raw.open(secure.service.port)
        stranger.send("CONNECT", client_version="raw", protocol_version=21, auth_method_name="token", auth_data=b"x")
        assert (await stranger.receive()).command.HasField("error")
        await stranger.close()
        told = [re.sub(r' address="[^"]*"', "", one) for one in lines(caplog)]
    assert told == [
        f'role="stranger" original=- operation="GET" resource="{stats}" outcome="401"',
        'role="proxy" original="bo\\"b" operation="DELETE" resource="/admin/v2/tenants/sec%0Ax" outcome="401"',
        'role="tenantadmin" original=- operation="PUT" resource="/admin/v2/namespaces/sec/new" outcome="204"',
        f'role="producer" original=- operation="CREATE_TOPIC" resource="{TOPIC}-new" outcome="done"',
        f'role="producer" original=- operation="SUBSCRIBE" resource="{TOPIC}" outcome="refused"',
        f'role=- original=- operation="GET" resource="{stats}%0A" outcome="401"',
        'role=- original=- operation="CONNECT" resource="" outcome="refused"',
    ]


async def test_nothing_is_told_while_authentication_is_off(
    broker: RunningBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    assert (await broker.http.put("/admin/v2/namespaces/public/new")).status_code == 204
    assert lines(caplog) == []
