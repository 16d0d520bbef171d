"""The lag in a status: what the broker counts, and never what it counted before a run that has ended since."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from magnetar.instance.endpoint_settings import subscription_of
from magnetar.instance.spec import InstanceSpec
from magnetar.spark.jobs.backlog import UNKNOWN, Backlog

from tests.spark.specs import MakeSpec

DEADLINE_S = 30.0


class SlowBroker:
    """Tells a backlog; a question that has come is answered once `may_answer` is set.

    Attributes:
        entries: the backlog, as it is when a question comes.
    """

    def __init__(self) -> None:
        self.entries = 0
        self.subscription = ""
        self.was_asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith("/partitions"):
                    answer: object = {"partitions": 0}
                else:
                    answer = {"subscriptions": {told.subscription: {"msgBacklog": told.entries}}}
                    told.was_asked.set()
                    told.may_answer.wait(DEADLINE_S)
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def broker() -> Iterator[SlowBroker]:
    it = SlowBroker()
    yield it
    it.close()


@pytest.fixture
def spec(broker: SlowBroker, make: MakeSpec) -> InstanceSpec:
    spec = replace(make(), admin_url=broker.url)
    spec.details.source.inputSpecs["persistent://public/default/in"].SetInParent()
    broker.subscription = subscription_of(spec)
    return spec


async def test_the_broker_tells_how_much_is_left(broker: SlowBroker, spec: InstanceSpec) -> None:
    broker.entries = 7
    assert await Backlog(spec).entries() == 7
    assert await Backlog(replace(spec, admin_url="")).entries() == UNKNOWN


async def test_what_was_known_before_the_end_of_a_run_is_not_shown_after_it(
    broker: SlowBroker, spec: InstanceSpec
) -> None:
    backlog = Backlog(spec)
    broker.entries = 50
    assert await backlog.entries() == 50
    broker.entries = 0
    backlog.run_ended(0)
    assert await backlog.entries() == 0
    broker.entries = 3  # and the broker is asked again at once
    backlog.run_ended(0)
    assert await backlog.entries() == 3


async def test_an_answer_to_a_question_of_before_is_not_believed_however_late_it_comes(
    broker: SlowBroker, spec: InstanceSpec
) -> None:
    backlog = Backlog(spec)
    broker.entries = 50
    broker.may_answer.clear()
    early = asyncio.ensure_future(backlog.entries())
    await asyncio.to_thread(broker.was_asked.wait, DEADLINE_S)
    broker.entries = 2
    backlog.run_ended(0)
    assert await early == 0  # it does not wait for a slow broker, and shows what the run has left
    broker.may_answer.set()
    async with asyncio.timeout(DEADLINE_S):
        while (shown := await backlog.entries()) != 2:
            assert shown == 0


async def test_who_waits_for_the_broker_is_told_what_is_known_when_the_function_stops(
    broker: SlowBroker, spec: InstanceSpec
) -> None:
    backlog = Backlog(spec)
    broker.may_answer.clear()
    waiting = asyncio.ensure_future(backlog.entries())
    await asyncio.to_thread(broker.was_asked.wait, DEADLINE_S)
    backlog.close()
    assert await waiting == UNKNOWN
    broker.may_answer.set()  # the loop waits for its threads when it is closed
