"""What an instance knows of its output topics, and what it does when that changes under it."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from typing import cast

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.connections.connection import Connection
from magnetar.client.deduplication import memory_guard
from magnetar.errors import ConnectionLost
from magnetar.instance.exact.topics import REFRESH_S, OutputTopics
from magnetar.security.client_credentials import ClientCredentials

TOPIC = "persistent://public/default/out"
PATH = "/admin/v2/persistent/public/default/out"


class Admin(http.server.BaseHTTPRequestHandler):
    """The broker's REST interface, as far as it is needed here."""

    policy: bool | None = None
    is_down = False
    statuses: tuple[str, ...] = ()  # one after the other; the last one stays; without any there is no such topic

    def do_GET(self) -> None:
        if self.path == f"{PATH}/deduplicationEnabled":
            self._answer("" if Admin.policy is None else json.dumps(Admin.policy))
        elif self.path == f"{PATH}/stats":
            status, *later = Admin.statuses or ("",)
            Admin.statuses = tuple(later) or Admin.statuses
            self._answer(json.dumps({"deduplicationStatus": status}), 200 if status else 404)
        else:
            self._answer(json.dumps({"partitions": 0}))

    def do_PUT(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        Admin.policy = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer("")

    def _answer(self, text: str, status: int = 200) -> None:
        self.send_response(500 if Admin.is_down else status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def admin_url() -> Iterator[str]:
    Admin.policy, Admin.is_down, Admin.statuses = None, False, ()
    with http.server.HTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Client:
    """The instance's client: asks a broker for partitions."""

    def __init__(self) -> None:
        self.count = 1
        self.is_down = False

    async def partitions(self, topic: str) -> list[str]:
        if self.is_down:
            raise ConnectionLost("no broker")
        return [topic] if self.count == 1 else [f"{topic}-partition-{number}" for number in range(self.count)]


class Desk:
    def __init__(self, admin_url: str = "") -> None:
        self.now_s = 0.0
        self.client = Client()
        self.said: list[str] = []
        self.topics = OutputTopics(
            cast(AsyncClient, self.client), admin_url, ClientCredentials(), self.said.append, lambda: self.now_s
        )

    async def look(self) -> list[str]:
        """What the function's thread learns."""
        return list(await asyncio.to_thread(self.topics.partitions_of, TOPIC))


async def test_partitions_that_are_added_are_used_soon() -> None:
    desk = Desk()
    assert await desk.look() == [TOPIC]
    desk.client.count = 2
    assert await desk.look() == [TOPIC]
    desk.now_s += REFRESH_S
    assert await desk.look() == [f"{TOPIC}-partition-0", f"{TOPIC}-partition-1"]


async def test_a_broker_that_is_away_changes_nothing_that_is_known() -> None:
    desk = Desk()
    desk.client.is_down = True
    with pytest.raises(ConnectionLost):
        await desk.look()
    desk.client.is_down = False
    await desk.look()
    desk.now_s += REFRESH_S
    desk.client.is_down = True
    assert await desk.look() == [TOPIC]
    desk.client.is_down, desk.client.count = False, 2
    desk.now_s += REFRESH_S
    assert len(await desk.look()) == 2


async def test_deduplication_that_was_switched_off_is_noticed_and_switched_on_again(admin_url: str) -> None:
    desk = Desk(admin_url)
    assert await desk.look() == [TOPIC]
    assert (Admin.policy, desk.said) == (True, [])
    desk.now_s += REFRESH_S
    await desk.look()
    assert desk.said == []
    Admin.policy = None  # also what becomes of it when the topic is deleted and created again
    desk.now_s += REFRESH_S
    await desk.look()
    assert Admin.policy
    (line,) = desk.said
    assert f"deduplication of {TOPIC} was disabled" in line


async def test_an_administration_that_is_away_ends_no_instance(admin_url: str) -> None:
    desk = Desk(admin_url)
    await desk.look()
    Admin.policy, Admin.is_down = None, True
    desk.now_s += REFRESH_S
    assert await desk.look() == [TOPIC]


NO_CONNECTION = cast("Connection", None)  # the guard looks at none


@pytest.mark.parametrize(
    ("statuses", "policy", "settled"),
    [
        (("Enabled", "unasked"), None, "Enabled"),
        (("Initialized", "Recovering", "Enabled", "unasked"), True, "Enabled"),
        (("Disabled", "Recovering", "Enabled", "unasked"), True, "Enabled"),
        (("Disabled", "unasked"), None, "Disabled"),
        ((), True, "missing"),
    ],
)
async def test_a_producer_attaches_once_the_broker_knows_what_it_has_stored(
    admin_url: str, statuses: tuple[str, ...], policy: bool | None, settled: str
) -> None:
    Admin.statuses, Admin.policy = statuses, policy
    before: list[Connection] = []

    async def lock(connection: Connection) -> None:
        before.append(connection)

    await memory_guard(admin_url, TOPIC, lock)(NO_CONNECTION)
    assert before == [NO_CONNECTION]
    assert Admin.statuses == (("unasked",) if settled != "missing" else ())


async def test_a_broker_that_does_not_tell_what_it_has_stored_is_asked_again_later(
    admin_url: str,
) -> None:
    Admin.is_down = True
    with pytest.raises(ConnectionLost, match=f"did not return the deduplication status of {TOPIC}: status 500"):
        await memory_guard(admin_url, TOPIC)(NO_CONNECTION)
    Admin.is_down, Admin.statuses = False, ("Recovering",)
    with pytest.raises(ConnectionLost, match=r"was still Recovering after 0\.1 s: nothing can be sent until"):
        await memory_guard(admin_url, TOPIC, timeout_s=0.1)(NO_CONNECTION)
