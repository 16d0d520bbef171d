"""Multipart requests, in every way in which clients send and networks cut them."""

from __future__ import annotations

from collections.abc import AsyncIterable
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import RequestRefused
from magnetar.metadata.packages import PackageStore, Upload
from magnetar.worker.rest.form_limits import FORM_BYTES_MAX, UPLOADS_PER_CALLER, FormAccount, FormLimits
from magnetar.worker.rest.multipart import MAX_PART_BYTES, MAX_PARTS, Form, read_form
from starlette.requests import Request

BODY = b"\r\n".join(
    (
        b"--b",
        b'Content-Disposition: form-data; name="functionConfig" ',
        b"Content-Type: application/json; charset=UTF-8",
        b"",
        b'{"a": 1}',
        b"--b",
        b'Content-Disposition: form-data; name="url" ',
        b"",
        b"http://x",
        b"--b",
        b'content-disposition: form-data; name="data"; filename="f.py"',
        b"Content-Type: application/octet-stream",
        b"",
        b"line one",
        b"--b-",
        b"line two",
        b"--b--",
        b"",
    )
)


def request(body: list[bytes], content_type: str = "multipart/form-data; boundary=b") -> Request:
    pieces = iter(body)

    async def receive() -> dict[str, object]:
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    headers = [(b"content-type", content_type.encode())] if content_type else []
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


def account() -> FormAccount:
    return FormAccount(FormLimits(), "role r")


def part(name: str, content: bytes) -> bytes:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"


class MemoryUploads(PackageStore):
    """Takes the streamed part into memory."""

    def __init__(self) -> None:
        self.content = b""
        self.discarded = 0

    async def receive(self, chunks: AsyncIterable[bytes]) -> Upload:
        async for chunk in chunks:
            self.content += chunk
        return Upload(Path("x"), "id", len(self.content))

    async def discard(self, upload: Upload) -> None:
        self.discarded += 1


async def streamed(body: list[bytes]) -> tuple[Form, bytes]:
    """Return the form, and what came for the part that is streamed."""
    uploads = MemoryUploads()
    return await read_form(request(body), account(), "data", uploads), uploads.content


@pytest.mark.parametrize("missing", [1, 6, 8, 20])
async def test_a_body_that_ends_too_early_is_refused(missing: int) -> None:
    with pytest.raises(RequestRefused, match=r"ends before its last boundary|malformed"):
        await streamed([BODY.rstrip()[:-missing]])


async def test_an_upload_is_forgotten_when_the_rest_is_refused() -> None:
    uploads = MemoryUploads()
    body = part("data", b"content") + part("x", b"") * 2 + b"--b--\r\n"
    with pytest.raises(RequestRefused, match="the request contains the part x twice"):
        await read_form(request([body]), account(), "data", uploads)
    assert (uploads.content, uploads.discarded) == (b"content", 1)


@given(st.lists(st.integers(0, len(BODY)), max_size=6))
async def test_any_split_of_the_body_reads_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(BODY)]
    form, data = await streamed([BODY[a:b] for a, b in pairwise(edges)])
    assert list(form) == ["functionConfig", "url", "data"]
    assert form["functionConfig"].is_json
    assert form["functionConfig"].content == b'{"a": 1}'
    assert not form["url"].is_json
    assert form["url"].content == b"http://x"
    assert form["data"].file_name == "f.py"
    assert form["data"].upload is not None
    assert data == b"line one\r\n--b-\r\nline two"


async def test_what_httpx_sends_is_read() -> None:
    sent = httpx.Request("POST", "http://x", files={"data": ("ü.py", b"x", "text/x"), "topic": (None, "t")})
    form = await read_form(request([sent.read()], sent.headers["content-type"]), account())
    assert (form["data"].file_name, form["data"].content, form["topic"].content) == ("ü.py", b"x", b"t")


@pytest.mark.parametrize(
    ("content_type", "status"), [("", 400), ("application/json", 415), ("multipart/form-data", 400)]
)
async def test_other_requests_are_refused(content_type: str, status: int) -> None:
    with pytest.raises(RequestRefused) as caught:
        await read_form(request([b"{}"], content_type), account())
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (part("x", b"y" * (MAX_PART_BYTES + 1)) + b"--b--\r\n", "the part x is larger than"),
        (
            b"".join(part(str(i), b"") for i in range(MAX_PARTS + 1)) + b"--b--\r\n",
            "more than 32 parts",
        ),
        (b"--b\r\nA: " + b"y" * 100_000, "Maximum header size exceeded"),
        (part("x", b"") * 2 + b"--b--\r\n", "the request contains the part x twice"),
        (b"no boundary at all", "the multipart request is malformed"),
    ],
)
async def test_what_is_too_large_or_broken_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RequestRefused, match=reason) as caught:
        await read_form(request([body]), account())
    assert caught.value.status == 400


@given(st.binary(max_size=300))
async def test_garbage_is_refused_or_read_but_never_breaks(garbage: bytes) -> None:
    try:
        await read_form(request([b"--b\r\n", garbage]), account())
    except RequestRefused as exc:
        refused = exc.status
    else:
        return
    assert refused == 400


async def test_small_parts_together_are_bounded() -> None:
    content = b"y" * (FORM_BYTES_MAX // 4)
    body = b"".join(part(str(number), content) for number in range(5)) + b"--b--\r\n"
    held = account()
    with pytest.raises(RequestRefused, match=r"^the parts of the request other than the package exceed 6291456 bytes$"):
        await read_form(request([body]), held)
    held.close()


async def test_forms_of_one_caller_leave_memory_for_others() -> None:
    limits = FormLimits()
    content = part("x", b"y" * 4_000_000) + b"--b--\r\n"
    greedy = [FormAccount(limits, "role greedy") for _ in range(7)]
    for one in greedy[:6]:
        await read_form(request([content]), one)
    with pytest.raises(RequestRefused, match=r"^requests of role greedy hold 24 MiB of forms: retry") as caught:
        await read_form(request([content]), greedy[6])
    assert caught.value.status == 429
    others = [FormAccount(limits, f"role {number}") for number in range(20)]
    for one in others[:19]:
        await read_form(request([content]), one)
    with pytest.raises(RequestRefused, match=r"^requests hold 96 MiB of forms: retry shortly$") as caught:
        await read_form(request([content]), others[19])
    assert caught.value.status == 503
    for one in (*greedy, *others):
        one.close()
    assert repr(limits.memory) == "Shares(0 of 100663296, {})"


async def test_uploads_of_one_caller_leave_places_for_others() -> None:
    limits = FormLimits()
    body = part("data", b"x") + b"--b--\r\n"
    greedy = [FormAccount(limits, "address 10.0.0.1") for _ in range(UPLOADS_PER_CALLER + 1)]
    for one in greedy[:-1]:
        await read_form(request([body]), one, "data", MemoryUploads())
    with pytest.raises(RequestRefused, match=r"^address 10\.0\.0\.1 has 32 uploads in progress: retry") as caught:
        await read_form(request([body]), greedy[-1], "data", MemoryUploads())
    assert caught.value.status == 429
    await read_form(request([body]), FormAccount(limits, "role other"), "data", MemoryUploads())
    greedy[0].close()
    await read_form(request([body]), greedy[-1], "data", MemoryUploads())
