"""Packages by URL: only from addresses that are allowed, within limits, by every redirect."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from magnetar.errors import RequestRefused
from magnetar.metadata.packages import PackageStore
from magnetar.worker.functions import package_urls
from magnetar.worker.functions.package_index import PackageIndex
from magnetar.worker.functions.package_urls import PackageUrls
from magnetar.worker.service import WorkerService

from tests.metadata.memory_log import MemoryLog
from tests.support.pulsar import Broker, own_name

from .conftest import worker_config

CODE = b"def process(x): return x\n"
NOT_VALID = "Function Package url is not valid.supported url (http/https/file); the URL must match one of the worker's"


def answer(request: httpx.Request) -> httpx.Response:
    match request.url.path:
        case "/f.py":
            assert request.headers["accept-encoding"] == "identity"
            return httpx.Response(200, stream=httpx.ByteStream(CODE))
        case "/moved":
            return httpx.Response(302, headers={"location": "/f.py"})
        case "/inside":
            return httpx.Response(302, headers={"location": "http://169.254.169.254/secret"})
        case "/file":
            return httpx.Response(302, headers={"location": "file:///etc/passwd"})
        case "/circle":
            return httpx.Response(302, headers={"location": "/circle"})
        case "/packed":
            return httpx.Response(200, headers={"content-encoding": "br"}, content=b"x")
        case "/empty":
            return httpx.Response(200, stream=httpx.ByteStream(b""))
        case "/large":
            return httpx.Response(200, stream=httpx.ByteStream(b"x" * 2000))
    return httpx.Response(404)


@pytest.fixture
async def urls(tmp_path: Path) -> AsyncIterator[PackageUrls]:
    store = PackageStore(tmp_path / "store", None)  # type: ignore[arg-type]
    store.prepare()
    (tmp_path / "code").mkdir()
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        index = PackageIndex(MemoryLog(), "w")
        yield PackageUrls(store, http, index, ("https://packages.example/.*", f"file://{tmp_path}/code/.*"))


async def refusal(urls: PackageUrls, url: str, title: str = "Function") -> str:
    with pytest.raises(RequestRefused) as caught:
        await urls.fetch(url, title)
    assert caught.value.status == 400
    return str(caught.value)


async def test_allowed_addresses_are_fetched(urls: PackageUrls, tmp_path: Path) -> None:
    (tmp_path / "code" / "my f.py").write_bytes(CODE)
    for url, name in (
        ("https://packages.example/f.py", "f.py"),
        ("https://packages.example/moved", "moved"),
        (f"file://{tmp_path}/code/my%20f.py", "my f.py"),
    ):
        upload, found = await urls.fetch(url, "Function")
        assert (upload.path.read_bytes(), found) == (CODE, name)


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/f.py", "http://packages.example/f.py", "ftp://packages.example/f.py",
        "https://packages.example", "file:///etc/passwd", "file://host/etc/passwd", "https://[", "",
        "https://packages.example/../f.py", "https://packages.example/%2e%2e/f.py",
    ],
)  # fmt: skip
async def test_others_are_refused_by_name(urls: PackageUrls, url: str) -> None:
    assert (await refusal(urls, url)).startswith(f"{NOT_VALID} additionalEnabledFunctionsUrlPatterns (https://")


async def test_a_path_that_leads_out_of_what_is_allowed_is_refused(urls: PackageUrls, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_bytes(CODE)
    for path in ("../secret.py", "%2e%2e/secret.py", "..%2fsecret.py"):
        assert (await refusal(urls, f"file://{tmp_path}/code/{path}")).startswith(NOT_VALID)


async def test_each_kind_has_its_own_addresses(urls: PackageUrls) -> None:
    reason = await refusal(urls, "https://packages.example/f.py", "Sink")
    assert "additionalEnabledConnectorUrlPatterns (none is set)" in reason


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("inside", NOT_VALID),
        ("file", 'Encountered error "redirected to file:///etc/passwd" when getting Function package'),
        ("circle", 'Encountered error "more than 5 redirects"'),
        ("packed", 'Encountered error "the response is compressed'),
        ("missing", 'Encountered error "HTTP 404 Not Found"'),
        ("empty", 'Encountered error "the package is empty'),
        ("large", 'Encountered error "the package is larger than'),
    ],
)
async def test_what_is_no_package_is_refused(
    urls: PackageUrls, path: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.metadata.packages.MAX_PACKAGE_BYTES", 1000)
    assert (await refusal(urls, f"https://packages.example/{path}")).startswith(reason)


async def test_a_named_pipe_holds_nobody_up(urls: PackageUrls, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "code" / "pipe.py")
    assert "pipe.py is not a regular file" in await refusal(urls, f"file://{tmp_path}/code/pipe.py")
    assert "No such file" in await refusal(urls, f"file://{tmp_path}/code/none.py")
    assert package_urls.FETCH_TIMEOUT_S < 30


@pytest.mark.slow
async def test_a_function_is_created_and_updated_by_url(broker: Broker, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.py").write_bytes(f"def process(x): return x + ' {name}'\n".encode())
    config = worker_config(broker, tmp_path / "worker", f"public/functions{own_name('')}")
    service = WorkerService(replace(config, function_url_patterns=(f"file://{tmp_path}/.*",)))
    await service.start()
    path = f"{service.worker_url}/admin/v3/functions/public/default/{own_name('by-url')}"

    async def send(http: httpx.AsyncClient, method: str, place: str, **config: object) -> httpx.Response:
        parts = {
            "functionConfig": (None, json.dumps(config), "application/json"),
            "url": (None, f"file://{tmp_path}/{place}", "text/plain"),
        }
        return await http.request(method, path, files=parts)

    try:
        async with httpx.AsyncClient(timeout=60) as http:
            fields = {"className": "f.process", "inputs": [own_name("in")], "output": own_name("out")}
            refused = await send(http, "POST", "none/f.py", **fields, py="f.py", runtimeEnv="thread")
            assert (refused.status_code, "No such file" in refused.text) == (400, True)
            created = await send(http, "POST", "first/f.py", **fields, py="f.py", runtimeEnv="thread")
            assert created.status_code == 204, created.text
            assert (await http.get(f"{path}/download")).content == (tmp_path / "first" / "f.py").read_bytes()
            assert (await send(http, "PUT", "second/f.py")).status_code == 204
            answer = await http.post(f"{path}/trigger", files={"data": (None, "x")})
            assert answer.text == "x second"
    finally:
        await service.stop()
    assert list((tmp_path / "worker" / "packages" / ".incoming").iterdir()) == []
