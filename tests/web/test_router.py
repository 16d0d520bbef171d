"""The router of all REST interfaces: paths as sent, methods of a path, errors; and its description as OpenAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from magnetar.errors import ConnectionLost, MagnetarError, RequestRefused
from magnetar.web.answers import Refused, as_json, done
from magnetar.web.call import Call, Query, takes
from magnetar.web.openapi import describe, pages
from magnetar.web.router import Handler, RestRouter, Routes
from starlette.responses import Response, StreamingResponse

TAIL = Query("tail", int, 100)
FOLLOW = Query("follow", bool, False)
RUN = Query("runId", str)


@takes(TAIL, FOLLOW, RUN)
async def logs(call: Call) -> Response:
    """Return lines."""
    return as_json([call.text("name"), TAIL.of(call), FOLLOW.of(call), RUN.of(call)])


async def key(call: Call) -> Response:
    return as_json({"key": call.text("key"), "number": float("nan")})


async def change(call: Call) -> Response:
    await call.body_bytes(10)
    return done()


async def endless(_: Call) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        while True:
            yield b"x"

    return StreamingResponse(lines(), media_type="text/plain")


async def fail(call: Call) -> Response:
    raise {
        "refused": Refused(418, "no\n  tea", {"x-why": "pot"}),
        "rule": RequestRefused(400, "against  a rule"),
        "lost": ConnectionLost("gone"),
        "bug": ValueError("a bug"),
    }[call.raw("kind")]


ROUTES: Routes[Call] = (
    ("GET", "/a/{name}/logs", logs),
    ("PUT", "/a/{first}/{second}", change),
    ("GET", "/a/{name}/state/{key:path}", key),
    ("GET", "/endless", endless),
    ("GET", "/fail/{kind}", fail),
)


def refuse(error: MagnetarError) -> Refused:
    return Refused(503, f"later: {error}")


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    app = RestRouter([*ROUTES, *pages("Test", "1", ROUTES)], Call, refuse, "test server")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://h") as client:
        yield client


async def test_paths_are_matched_as_sent_and_decoded_once(http: httpx.AsyncClient) -> None:
    assert (await http.get("/a/b%2Fc%2525/logs?runId=r")).json() == ["b/c%25", 100, False, "r"]
    assert (await http.get("/a/b/state/c%2Fd/e/")).json() == {"key": "c/d/e/", "number": None}
    assert (await http.get("/a/b/logs/?runId=r")).status_code == 200
    for path in ("/a/b/logs//", "/nothing", "/", "/a//////"):
        answer = await http.get(path)
        assert (answer.status_code, answer.json()["reason"].partition(":")[0]) == (404, "no such path")


async def test_the_first_of_the_table_that_matches_answers() -> None:
    def named(number: int) -> Handler[Call]:
        return lambda _: as_json(number)

    paths = (
        "/a/b/c/{one}/x", "/a/b/c/{one}/{two}", "/a/b/c/x/y/z", "/a/b/c/{rest:path}", "/a/b/d/{one}/{two}",
        "/{a}/b/{c}/d/e/f", "/a/b/c",
    )  # fmt: skip
    app = RestRouter([("GET", path, named(number)) for number, path in enumerate(paths)], Call, refuse, "test server")
    sent = {
        "/a/b/c/1/x": 0, "/a/b/c/1/2": 1, "/a/b/c/x/y/z": 2, "/a/b/c/x/y/": 3, "/a/b/c/x/y/q": 3, "/a/b/d/1/2": 4,
        "/a/b/d/1/2/": 4, "/a/b/q/d/e/f": 5, "/a/b/c": 6, "/a/b/c/": 3,
    }  # fmt: skip
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://h") as client:
        assert {path: (await client.get(path)).json() for path in sent} == sent
        assert (await client.get("/a/b/d/1")).status_code == 404


async def test_a_path_with_the_method_goes_before_one_without(http: httpx.AsyncClient) -> None:
    assert (await http.put("/a/b/logs")).status_code == 204
    answer = await http.post("/a/b/logs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "HEAD,GET,OPTIONS")
    assert answer.json() == {"reason": "POST is not allowed for this path: use HEAD,GET,OPTIONS"}
    options = await http.options("/endless")
    assert (options.status_code, options.text) == (200, "HEAD, GET, OPTIONS")
    for path in ("/endless", "/a/b/logs?runId=r"):
        head = await http.head(path)
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("runId=r&tail=-1&follow=on", [-1, True, "r"]),
        ("runId=&follow=False", [100, False, ""]),
        ("tail=1", "runId: Field required"),
        ("runId=r&tail=x", "tail: Input should be a valid integer"),
        ("runId=r&follow=x", "follow: Input should be a valid boolean"),
    ],
)
async def test_query_parameters_are_read_as_declared(http: httpx.AsyncClient, query: str, found: object) -> None:
    answer = (await http.get(f"/a/b/logs?{query}")).json()
    assert (answer["reason"] if isinstance(answer, dict) else answer[1:]) == found


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("refused", 418, "no tea"),
        ("rule", 400, "against  a rule"),
        ("lost", 503, "later: gone"),
        ("bug", 500, "internal error ValueError: a bug; see the test server's log"),
    ],
)
async def test_errors_are_answered_with_a_reason(http: httpx.AsyncClient, kind: str, status: int, reason: str) -> None:
    answer = await http.get(f"/fail/{kind}")
    assert (answer.status_code, answer.json()) == (status, {"reason": reason})
    assert answer.headers.get("x-why") == ("pot" if kind == "refused" else None)
    assert (await http.put("/a/b/c", content=b"x" * 11)).status_code == 413


async def test_the_table_is_described(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    assert document == describe("Test", "1", ROUTES)
    assert set(document["paths"]) == {path.replace(":path", "") for _, path, _ in ROUTES}
    one = document["paths"]["/a/{name}/logs"]["get"]
    assert one["description"] == "Return lines."
    assert [(each["name"], each["in"], each["required"], each["schema"]) for each in one["parameters"]] == [
        ("name", "path", True, {"type": "string", "minLength": 1}),
        ("tail", "query", False, {"type": "integer", "default": 100}),
        ("follow", "query", False, {"type": "boolean", "default": False}),
        ("runId", "query", True, {"type": "string"}),
    ]
    for path in ("/docs", "/redoc"):
        assert "/openapi.json" in (await http.get(path)).text
