"""The state store beside a broker: announced by it, found by its clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from magnetar.worker.cluster import state_discovery
from magnetar.worker.cluster.state_discovery import AnnouncedStore, announced_state_store

OURS = {"stateStorageServiceUrl": "bk://h:4181", "brokerServiceUrl": "pulsar://h:6650"}


class Answers(HTTPServer):
    """Answers with one after the other, and with the last one from then on."""

    given: list[tuple[int, object]]


@pytest.fixture
def rest() -> Iterator[Answers]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers = server.given
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
            """Log nothing."""

    server = Answers(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def found(rest: Answers, *answers: tuple[int, object]) -> AnnouncedStore | None:
    rest.given = list(answers)
    return announced_state_store(f"http://127.0.0.1:{rest.server_port}/")


def test_an_announced_state_store_is_found(rest: Answers) -> None:
    assert found(rest, (200, OURS)) == AnnouncedStore("bk://h:4181", ("pulsar://h:6650",))
    tls = {**OURS, "brokerServiceUrlTls": "pulsar+ssl://h:6651"}
    assert found(rest, (200, tls)) == AnnouncedStore("bk://h:4181", ("pulsar://h:6650", "pulsar+ssl://h:6651"))


def test_a_broker_that_speaks_tls_only_announces_its_store(rest: Answers) -> None:
    tls = {
        "stateStorageServiceUrl": "bk+ssl://h:4181",
        "brokerServiceUrl": "",
        "brokerServiceUrlTls": "pulsar+ssl://h:1",
    }
    assert found(rest, (200, tls)) == AnnouncedStore("bk+ssl://h:4181", ("pulsar+ssl://h:1",))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({**OURS, "stateStorageServiceUrl": "http://h:4181"}, "expected bk://host:port"),
        ({**OURS, "stateStorageServiceUrl": ["bk://h:4181"]}, "expected bk://host:port"),
        ({**OURS, "brokerServiceUrl": "h:6650"}, "service URL 'h:6650': unsupported scheme none"),
        ({**OURS, "brokerServiceUrlTls": {"a": 1}}, "unsupported scheme none"),
    ],
    ids=["scheme", "list", "broker", "object"],
)
def test_a_malformed_announcement_is_ignored_and_logged(
    rest: Answers, answer: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert found(rest, (200, answer)) is None
    assert "ignoring the state store announced by http://127.0.0.1" in caplog.text
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("url", "admin_url", "is_usable"),
    [
        ("bk://127.0.0.1:4181", "http://127.0.0.1:8080", True),
        ("bk://localhost:4181", "http://[::1]:8080", True),
        ("bk://127.0.0.1:4181", "http://192.0.2.1:8080", False),
        ("bk://[::1]:4181", "https://192.0.2.1", False),
        ("bk://192.0.2.1:4181", "http://192.0.2.1:8080", True),
    ],
)
def test_a_store_on_loopback_of_another_machine_is_not_used(url: str, admin_url: str, is_usable: bool) -> None:
    reason = state_discovery._reason_against(url, ("pulsar://h:6650",), admin_url)
    assert reason == ("" if is_usable else f"{url} is only reachable on that machine")


def test_a_state_store_that_is_starting_is_waited_for(rest: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(rest, (503, {}), (503, {}), (200, OURS)) is not None
    monkeypatch.setattr(state_discovery, "STARTING_S", 0.0)
    assert found(rest, (503, {})) is None


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"metadataStoreUrl": "zk:h", "stateStorageServiceUrl": "bk://h:4181"}),  # Apache Pulsar's own
        (200, {"brokerServiceUrl": "pulsar://h:6650"}),
        (200, []),
        (401, {"reason": "no"}),
        (403, {"reason": "no"}),
        (404, {"reason": "no"}),
    ],
    ids=str,
)
def test_other_answers_announce_none(rest: Answers, answer: tuple[int, object]) -> None:
    assert found(rest, answer) is None
