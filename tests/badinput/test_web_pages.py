"""A web page that is open in somebody's browser, and the web ports of a standalone on the same machine."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.command import call
from tests.support.servers import Server, running

FORM: dict[str, tuple[str | None, str, str]] = {
    "functionConfig": (None, '{"className": "f.process", "inputs": ["in"], "py": "f.py"}', "application/json"),
    "data": ("f.py", "def process(text):\n    return text\n", "application/octet-stream"),
}


@pytest.mark.parametrize("port", ["webServiceUrl", "workerUrl"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_page_of_another_site_deploys_nothing(standalone: Server, port: str, headers: dict[str, str]) -> None:
    url = str(standalone.addresses[port])
    with httpx.Client(base_url=url, timeout=60) as http:
        answer = http.post("/admin/v3/functions/public/default/planted", files=FORM, headers=headers)
        assert answer.status_code == 403
        assert "webServiceAllowedHosts (--allowed-hosts)" in answer.json()["reason"]
        assert "planted" not in http.get("/admin/v3/functions/public/default").json()
        for path in ("/metrics", "/docs", "/openapi.json"):
            assert http.get(path, headers=headers).status_code == 403


@pytest.mark.slow
def test_page_whose_host_is_allowed_may_ask(tmp_path: Path) -> None:
    with running("standalone", tmp_path, "--allowed-hosts", "magnetar.example.com,other.example.com") as server:
        page = {"Host": "magnetar.example.com", "Origin": "https://other.example.com", "Sec-Fetch-Site": "cross-site"}
        for url in (server.web_url, server.worker_url):
            path = f"{url}/admin/v3/functions/public/default"
            assert httpx.get(path, headers=page, timeout=60).status_code == 200
            assert httpx.get(path, headers={"Host": "example.com"}, timeout=60).status_code == 403


@pytest.mark.slow
@pytest.mark.parametrize("names", ["http://a.example", "a:80", ","])
def test_allowed_host_that_is_no_name_is_refused(tmp_path: Path, names: str) -> None:
    flags = ("--data-dir", str(tmp_path), "--web-port", "0", "--broker-port", "0", "--allowed-hosts", names)
    call("broker", *flags).refused("--allowed-hosts", "host")
