"""Requests that schemathesis makes of the broker's OpenAPI: none is answered with an internal error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from magnetar.broker.admin.app import ROUTES
from magnetar.web.openapi import describe
from magnetar.wire.topic_name import DOMAINS

from tests.support.servers import Server, running

EXAMPLES = int(os.environ.get("MAGNETAR_OPENAPI_EXAMPLES", "3"))
"""Requests to each path by each method."""
TIMEOUT_S = 60.0
LONGEST_REASON = 2000
SCHEMA = schemathesis.openapi.from_dict(describe("Magnetar broker", "1", ROUTES, {"domain": DOMAINS}))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("broker", tmp_path_factory.mktemp("openapi")) as server:
        with httpx.Client(base_url=server.web_url, timeout=TIMEOUT_S) as web:
            web.put("/admin/v2/tenants/0", json={"allowedClusters": ["standalone"]})
            web.put("/admin/v2/namespaces/0/0")
            web.put("/admin/v2/persistent/0/0/0")
        yield server


def test_the_broker_serves_the_description(broker: Server) -> None:
    served = httpx.get(f"{broker.web_url}/openapi.json", timeout=TIMEOUT_S).json()
    assert served["paths"] == describe("x", "x", ROUTES, {"domain": DOMAINS})["paths"]
    ids = [operation["operationId"] for methods in served["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
@pytest.mark.matrix
@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_is_answered_with_an_internal_error(case: schemathesis.Case[Any], broker: Server) -> None:
    answer = case.call(base_url=broker.web_url, timeout=TIMEOUT_S)
    assert answer.status_code != 500, answer.text
    if answer.status_code >= 400 and case.method != "HEAD":
        reason = json.loads(answer.content)["reason"]
        assert reason
        assert "\n" not in reason
        assert len(reason) < LONGEST_REASON
