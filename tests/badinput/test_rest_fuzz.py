"""Every route of the broker's and the worker's REST with values that nobody sends by mistake.

Whatever is sent: no answer is 500, an error is one line of reason, no traceback is in the log, and the servers live on.
`REST_FUZZ_SEED` sets another seed, `REST_FUZZ_REQUESTS` makes one longer.
"""

# ruff: noqa: E501  tables of values read better in few lines

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import httpx
import pytest
from magnetar.broker.admin.app import ROUTES

from tests.support.servers import Server, running

SEED = int(os.environ.get("REST_FUZZ_SEED") or 11)
REQUESTS = int(os.environ.get("REST_FUZZ_REQUESTS") or 6000)
TIMEOUT_S = 60.0
GOOD = {
    "domain": "persistent", "tenant": "fuzz", "namespace": "ns", "topic": "t", "subscription": "s", "cluster": "standalone",
    "bundle": "0x00000000_0x40000000", "name": "f", "instance_id": "0", "key": "k", "count": "1", "seconds": "1",
    "timestamp": "1", "ledger": "0", "entry": "0", "place": "1", "broker": "b", "role": "r", "value": "v",
}  # fmt: skip
SEGMENTS = (
    b"public", b"t-partition-0", b"t-partition-99999999999999999999", b"__compaction", b"pulsar.dedup", b".", b"..", b"%2e%2e",
    b"%00", b"%1b[2J", b"%ff", b"%25ff", b"%ed%a0%80", b"%25ed%25a0%2580", b"%c3%a9" * 128, b"x" * 2000, b"%2F", b"%252F", b"+",
    b"%20", b"%0a", b"-1", b"0", b"9" * 19, b"9" * 30, b"9" * 5000, b"1e400", b"NaN", b"1_0", b"%D9%A1", b"0x0_0x1",
    b"0xffffffff_0x00000000", b"a:b", b"persistent", b"non-persistent", b"null", b"true", b"%", b"%zz", b"{}", b"%F0%9F%98%80",
)  # fmt: skip
BODIES = (
    b"", b"null", b"true", b"0", b"-1", b"1e400", b"-1e400", b"NaN", b"Infinity", b"9" * 5000, b"9" * 30, b"1.5", b'""', b'"x"',
    b"{}", b"[]", b"[null]", b"[[]]", b'[""]', rb'"\ud800"', rb'{"\udfff": "\ud800"}', b"\xff\xfe", b"\xed\xa0\x80", b"{", b"[" * 100_000,
    b"[" * 500 + b"]" * 500, b'{"a":' * 500 + b"1" + b"}" * 500, b'{"a": 1, "a": 2}', b'{"a": null}', b"\x00" * 10, b"x" * 1_100_000,
    b'{"ledgerId": 1e400}', b'{"ledgerId": -1, "entryId": 9223372036854775807}', b'{"ledgerId": 9223372036854775807, "entryId": -5}',
    b'{"ledgerId": "x", "entryId": [], "batchIndex": {}}', b'{"ledgerId": 0, "entryId": 0, "excluded": "perhaps"}',
    b'{"bundles": {"boundaries": ["zz", "0x1"]}}', b'{"bundles": {"boundaries": ["0xffffffff", "0x0"], "numBundles": "1e9"}}',
    b'{"bundles": {"boundaries": [[]]}}', b'{"bundles": {"boundaries": "x"}}', b'{"bundles": {"numBundles": -5}}', b'{"bundles": []}',
    b'{"retention_policies": {"retentionTimeInMinutes": 1e30}}', b'{"retentionTimeInMinutes": -9, "retentionSizeInMB": 1e300}',
    b'{"adminRoles": [null], "allowedClusters": ["standalone"]}', b'{"adminRoles": {}, "allowedClusters": [{}]}',
    b'{"serviceUrl": {}, "brokerServiceUrl": 5}', b'{"peerClusterNames": "x"}', b'["standalone", "standalone"]', b'{"key": "k"}',
    b'{"limitSize": "9e9", "limitTime": -1e30, "policy": "producer_exception"}', b'{"limit": {}, "policy": ["producer_exception"]}',
    b'{"dispatchThrottlingRateInMsg": 1e30, "ratePeriodInSecond": -5}', b'{"publishThrottlingRateInByte": "x"}',
    b'{"subscribeThrottlingRatePerConsumer": 9223372036854775808}', b'{"inactiveTopicDeleteMode": {}, "maxInactiveDurationSeconds": []}',
    b'{"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": true}', b'{"managedLedgerMaxMarkDeleteRate": {}}', b'{"entryFilterNames": [1]}',
    b'["Shared", {}]', b'["produce", "produce", null]', b'[{"topic": "t", "role": {}}]', b'[{"topic": "t", "role": "r", "actions": 5}]',
    b'{"auth_policies": {"namespace_auth": [], "destination_auth": {"t": 5}}}', b'{"backlog_quota_map": {"message_age": []}}',
    b'{"topicDispatchRate": {"standalone": []}, "publishMaxMessageRate": {"x": {}}}', b'{"max_producers_per_topic": 1e400}',
    b'{"properties": {"\\u0000": "\\u001b"}}', b'{"to": "earliest"}', b'{"timestamp": 1e300}', b'{"messageId": "9"}',
)  # fmt: skip
CONFIGS = (
    b"{}", b"null", b"[]", b'"x"', b"1e400", b"[" * 5000, rb'{"className": "\ud800"}', b'{"className": "f.process", "py": "f.py"}',
    b'{"className": "f.process", "py": "f.py", "inputs": ["in"]}', b'{"inputs": ["in"], "inputSpecs": {"\\u0000": null}}',
    b'{"className": "f.process", "py": "f.py", "inputs": ["in"], "parallelism": 1e300}',
    b'{"className": "f.process", "py": "f.py", "inputs": ["in"], "resources": {"cpu": 1e308, "ram": -1}}',
    b'{"className": "f.process", "py": "f.py", "inputs": ["in"], "resources": {"cpu": ' + b"9" * 299 + b"}}",
    b'{"className": "f.process", "py": "f.py", "inputs": ["in"], "userConfig": {"a": ' + b"9" * 299 + b"}}",
    b'{"className": "f.process", "py": "f.py", "inputs": ["in"], "customRuntimeOptions": "' + b"[" * 5000 + b'"}',
    b'{"className": "f.process", "py": "\\u0000", "inputs": ["\\u001b", "a/b", "x://y"], "output": "\\n"}',
    b'{"className": "..", "py": "..", "inputs": [5], "subName": "\\u0000", "logTopic": "a b c"}',
    b'{"key": "k", "numberValue": 1e300}', b'{"key": "k", "byteValue": [1e3, "x"]}', b'{"key": "k", "stringValue": {}}',
    b'{"className": "f.process", "inputs": ["in"], "subscriptionPosition": "Middle", "runtimeFlags": "-x", "windowConfig": {}}',
)  # fmt: skip
TYPES = (
    "application/json",
    "",
    "text/plain",
    "application/xml",
    "\x80\xff",
    "multipart/form-data",
    "application/json; charset=utf-16",
)
QUERIES = (
    b"force=true", b"checkAllowAutoCreation=true", b"bundle=zz", b"bundle=0x00000000_0x40000000", b"mode=%ff", b"mode=ALL", b"isGlobal=x",
    b"messagePosition=1e400", b"messagePosition=" + b"9" * 5000, b"initialPosition=", b"tail=-1", b"tail=" + b"9" * 30, b"tail=x",
    b"workerId=%00", b"noWait=true", b"noWait=perhaps", b"runId=%1b", b"key=%00", b"a=%ed%a0%80", b"%", b"&&==&", b"topicVersion=V9",
    b"applied=true", b"getEarliestTimeInBacklog=true", b"perPartition=false", b"topics=%C3%A9", b"listenerName=%0a", b"path=../..",
)  # fmt: skip
PULSARS_OWN = ("Invalid state value", "Leader cannot be determined")
"""Reasons that Pulsar gives with 500 too."""
NEVER = (
    ("PUT", "/admin/v2/worker/drain"),
    ("PUT", "/admin/v2/worker/leader/drain"),
    ("DELETE", "/admin/v2/namespaces/{tenant}/{namespace}"),
    ("POST", "/admin/v2/namespaces/{tenant}/{namespace}/autoTopicCreation"),
    ("POST", "/admin/v2/namespaces/{tenant}/{namespace}/autoSubscriptionCreation"),
)
"""What would leave the function nowhere to run or nothing to read, so that requests about it wait for their timeouts."""


class Sent(NamedTuple):
    """One request."""

    port: int
    method: str
    target: bytes
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("fuzz")) as server:
        yield server


def prepare(url: str) -> None:
    """Make what the good names stand for; what is there stays."""
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as web:
        web.put("/admin/v2/tenants/fuzz", json={"allowedClusters": ["standalone"]})
        web.put("/admin/v2/namespaces/fuzz/ns")
        web.put("/admin/v2/persistent/fuzz/ns/t")
        web.put("/admin/v2/persistent/fuzz/ns/t/subscription/s")
        config = {"className": "f.process", "py": "f.py", "inputs": ["fuzz/ns/in"], "runtimeEnv": "thread"}
        files = {
            "functionConfig": (None, json.dumps(config), "application/json"),
            "data": ("f.py", "def process(text):\n    return text\n", "application/octet-stream"),
        }
        web.post("/admin/v3/functions/fuzz/ns/f", files=files)


def routes(server: Server) -> list[tuple[int, str, str]]:
    """Return port, verb and path of everything that is served."""
    web, worker = urlsplit(server.web_url).port, urlsplit(server.worker_url).port
    assert web is not None
    assert worker is not None
    paths = httpx.get(f"{server.worker_url}/openapi.json", timeout=TIMEOUT_S).json()["paths"]
    theirs = [(verb.upper(), path) for path, verbs in paths.items() for verb in verbs]
    found = [
        *((web, verb, path) for verb, path, _ in ROUTES),
        *((worker, verb, path) for verb, path in theirs),
        *((web, verb, path) for verb, path in theirs if path.startswith("/admin/v3/functions")),
    ]
    return [(port, verb, path) for port, verb, path in found if (verb, path) not in NEVER]


def target(rng: random.Random, path: str) -> bytes:
    """Return a path with its parameters filled in, some of them with what they cannot be, and perhaps a query."""

    def fill(match: re.Match[str]) -> str:
        name = match[1].partition(":")[0]
        segment = quote(GOOD.get(name, "x")).encode() if rng.random() < 0.75 else rng.choice(SEGMENTS)
        return segment.decode("latin-1")

    filled = re.sub(r"\{([^}]*)\}", fill, path).encode("latin-1")
    if rng.random() < 0.3:
        filled += b"?" + b"&".join(rng.sample(QUERIES, rng.randint(1, 2)))
    return filled


def form(rng: random.Random) -> tuple[str, bytes]:
    """Return a multipart request with odd parts."""
    boundary = b"fuzz"
    parts = []
    for name in rng.sample(
        (b"functionConfig", b"updateOptions", b"state", b"data", b"url", b"\xff", b"topic"), rng.randint(0, 4)
    ):
        kind = rng.choice(
            (b"application/json", b"application/json", b"text/plain", b"\x1b\xff", b"application/octet-stream")
        )
        content = rng.choice((*CONFIGS, *BODIES[:20], b"def process(x):\n    return x\n", b"PK\x03\x04broken"))
        file = rng.choice((b"", b'; filename="f.py"', b'; filename="\xff\x1b.zip"', b'; filename="../../f.py"'))
        head = b'Content-Disposition: form-data; name="' + name + b'"' + file + b"\r\nContent-Type: " + kind
        parts.append(b"--" + boundary + b"\r\n" + head + b"\r\n\r\n" + content + b"\r\n")
    end = rng.choice((b"--fuzz--\r\n", b"--fuzz--\r\n", b"--fuzz--\r\n", b"", b"--fuzz\r\n", b"--fu"))
    return rng.choice(
        ("multipart/form-data; boundary=fuzz",) * 8 + ('multipart/form-data; boundary=""', "multipart/form-data")
    ), b"".join(parts) + end


def make(rng: random.Random, port: int, verb: str, path: str) -> Sent:
    headers = {"Host": f"127.0.0.1:{port}", "Connection": "close"}
    body = b""
    if verb in ("POST", "PUT"):
        if "functions" in path and rng.random() < 0.7:
            headers["Content-Type"], body = form(rng)
        else:
            headers["Content-Type"], body = rng.choice(TYPES[:1] * 5 + TYPES), rng.choice(BODIES)
    headers["Content-Length"] = str(len(body))
    return Sent(port, verb, target(rng, path), headers, body)


def ask(sent: Sent) -> tuple[int, bytes]:
    """Send a request as it is, which no library would, and return status and body."""
    head = sent.method.encode() + b" " + sent.target + b" HTTP/1.1\r\n"
    head += (
        b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in sent.headers.items() if value) + b"\r\n"
    )
    with socket.create_connection(("127.0.0.1", sent.port), TIMEOUT_S) as connection:
        with contextlib.suppress(ConnectionError):  # answered and closed before it was read
            connection.sendall(head + sent.body)
        answer = http.client.HTTPResponse(connection, method=sent.method)
        answer.begin()
        return answer.status, answer.read()


def judge(sent: Sent, status: int, body: bytes) -> str:
    """Return what is wrong with an answer; nothing if it is right."""
    if status < 400:
        return ""
    if body == b"Invalid HTTP request received.":
        return ""
    try:
        reason = json.loads(body)["reason"]
    except (ValueError, KeyError, TypeError):
        return f"no reason: {body[:200]!r}"
    if not isinstance(reason, str) or not reason or not reason.isprintable():
        return f"not one line: {reason!r}"
    if status == 500 and reason not in PULSARS_OWN:
        return f"500: {reason}"
    return ""


@pytest.mark.slow
def test_whatever_is_sent_is_answered(fuzzed: Server) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    known = routes(fuzzed)
    assert len(known) > 250
    wrong: list[str] = []
    order = [known[index % len(known)] for index in range(REQUESTS)]
    rng.shuffle(order)
    for number, (port, verb, path) in enumerate(order):
        if number % 100 == 0:
            prepare(fuzzed.web_url)
        sent = make(rng, port, verb, path)
        try:
            fault = judge(sent, *ask(sent))
        except (OSError, http.client.HTTPException) as error:
            fault = f"no answer: {error!r}"
        if fault:
            wrong.append(
                f"{verb} {sent.target[:200]!r} {sent.headers.get('Content-Type')!r} {sent.body[:200]!r}: {fault}"
            )
    assert not wrong, f"seed {SEED}: {len(wrong)} wrong answers:\n" + "\n".join(wrong[:40])
    log = fuzzed.log_file.read_text()
    assert "Traceback" not in log
    assert all(line.isprintable() for line in log.split("\n"))
    with httpx.Client(base_url=fuzzed.web_url, timeout=TIMEOUT_S) as web:
        assert web.get("/admin/v2/brokers/health").text == "ok"
        assert web.get("/admin/v3/functions/public/default").json() == []


def test_client_that_leaves_in_the_middle_is_no_error(fuzzed: Server) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="functionConfig"\r\nContent-Type: application/json\r\n\r\n{"a'
    for url in (fuzzed.web_url, fuzzed.worker_url):
        port = urlsplit(url).port
        assert port is not None
        for path in (
            "/admin/v3/functions/public/default/f",
            "/admin/v2/tenants/t",
            "/admin/v3/functions/a/b/c/reset-cursor",
        ):
            head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            for verb in ("PUT", "POST"):
                with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
                    connection.sendall(head.replace("PUT", verb).encode() + b"Content-Length: 5000\r\n\r\n" + body)
        assert httpx.get(f"{url}/admin/v3/functions/public/default", timeout=TIMEOUT_S).status_code == 200
    log = fuzzed.log_file.read_text()
    assert "Traceback" not in log
    assert "ClientDisconnect" not in log


def test_addresses_in_the_path_of_the_log_are_escaped(fuzzed: Server, tmp_path: Path) -> None:
    for url in (fuzzed.web_url, fuzzed.worker_url):
        httpx.get(f"{url}/admin/v3/functions/public/default/%1b%5B2J%0aforged/status", timeout=TIMEOUT_S)
    assert "\x1b" not in fuzzed.log_file.read_text()
