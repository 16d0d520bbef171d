"""What a browser is told with every answer, and the two pages that load scripts."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx
import pytest
from magnetar.errors import MagnetarError
from magnetar.web.answers import Refused
from magnetar.web.call import Call
from magnetar.web.openapi import pages
from magnetar.web.router import RestRouter
from magnetar.web.serve import HEADERS, serve

NAMES = [name for name, _ in HEADERS]


def refuse(error: MagnetarError) -> Refused:
    return Refused(503, str(error))


async def answers(path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    """The answer of a server that has the pages of an interface without routes."""
    server, port = await serve(RestRouter(pages("Title", "1", ()), Call, refuse, "test"), "127.0.0.1", 0)
    try:
        async with httpx.AsyncClient() as client:
            return await client.get(f"http://127.0.0.1:{port}{path}", headers=headers)
    finally:
        await server.stop()


@pytest.mark.parametrize(("path", "headers", "status"), [
    ("/openapi.json", {}, 200),
    ("/missing", {}, 404),
    ("/%zz", {}, 400),
    ("/docs", {"origin": "http://other.site"}, 403),
])  # fmt: skip
async def test_every_answer_says_how_a_browser_takes_it(path: str, headers: dict[str, str], status: int) -> None:
    answer = await answers(path, headers)
    assert answer.status_code == status
    assert [(name, answer.headers.get(name)) for name in NAMES] == list(HEADERS)
    assert "server" not in answer.headers


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_page_runs_scripts_of_one_version_and_hash_alone(path: str) -> None:
    answer = await answers(path)
    policies = answer.headers.get_list("content-security-policy")
    loaded = re.findall(r"<(?:script src|link rel=\"stylesheet\" href)=[^>]*>", answer.text)
    assert loaded
    for each in loaded:
        assert re.search(r"@\d+\.\d+\.\d+/", each), "a version that floats can be replaced"
        assert re.search(r'integrity="sha384-[\w+/]{64}"', each)
        assert 'crossorigin="anonymous"' in each
    for script in re.findall(r"<script>(.*?)</script>", answer.text):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert any(f"'sha256-{digest}'" in policy for policy in policies)
    assert any("default-src 'none'" in policy for policy in policies)
    assert not any(
        "script-src" in policy and "unsafe" in policy.split("script-src")[1].split(";")[0] for policy in policies
    )
