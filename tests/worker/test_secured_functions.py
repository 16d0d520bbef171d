"""Functions on servers that ask who connects: each runs as who deployed it, and may what that role may."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pulsar
import pytest

from tests.support.servers import Server, running
from tests.support.tokens import SECRET, data_url, public_der, rsa_key, token
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = """
def process(input, context):
    context.incr_counter("n", 1)
    return f"{input}{context.get_counter('n')}"
"""
COPY = "def process(input):\n    return input\n"
PUBLISH = """
def process(input, context):
    context.publish(input, "x")
"""
RAISE = """
def process(input):
    if input == "bad":
        raise ValueError(input)
    return input
"""
LATER_S = 4_000_000_000
GRANTS = {"alice": ["functions", "sources", "sinks", "produce", "consume"], "bob": ["functions"], "carol": ["consume"]}


@dataclass
class Secured:
    """A server with authentication and authorization, seen by its roles."""

    server: Server
    make_token: Callable[..., str]
    clients: list[pulsar.Client] = field(default_factory=list)

    def call(self, method: str, path: str, role: str | None = "admin", **given: Any) -> httpx.Response:
        headers = {} if role is None else {"Authorization": f"Bearer {self.make_token(role)}"}
        return httpx.request(method, self.server.web_url + path, headers=headers, timeout=60, **given)

    def deploy(self, name: str, role: str, source: str, /, method: str = "POST", **config: Any) -> httpx.Response:
        """Create or change a function of acme/x."""
        options = config.pop("updateOptions", None)
        full: dict[str, Any] = {
            "tenant": "acme",
            "namespace": "x",
            "name": name,
            "runtime": "PYTHON",
            "py": "f.py",
            "className": "f",
        }
        full |= {"inputs": [f"persistent://acme/x/{name}-in"], "output": f"persistent://acme/x/{name}-out", **config}
        files = {
            "functionConfig": (None, json.dumps(full), "application/json"),
            "data": ("f.py", source, "application/octet-stream"),
        }
        if options is not None:
            files["updateOptions"] = (None, json.dumps(options), "application/json")
        return self.call(method, f"/admin/v3/functions/acme/x/{name}", role, files=files)

    def client(self, role: str | None) -> pulsar.Client:
        credentials = {} if role is None else {"authentication": pulsar.AuthenticationToken(self.make_token(role))}
        self.clients.append(pulsar.Client(self.server.service_url, operation_timeout_seconds=10, **credentials))
        return self.clients[-1]

    def answers(self, name: str, *texts: str) -> list[str]:
        """What a function puts out for these texts."""
        client = self.client("alice")
        consumer = client.subscribe(f"persistent://acme/x/{name}-out", "test")
        producer = client.create_producer(f"persistent://acme/x/{name}-in")
        for text in texts:
            producer.send(text.encode())
        found = []
        for _ in texts:
            message = consumer.receive(30_000)
            consumer.acknowledge(message)
            found.append(message.data().decode())
        consumer.close()
        return found

    def status(self, name: str) -> dict[str, Any]:
        answer = self.call("GET", f"/admin/v3/functions/acme/x/{name}/status").json()
        return dict(answer["instances"][0]["status"])

    def close(self) -> None:
        for client in self.clients:
            client.close()


def prepared(server: Server, make_token: Callable[[str], str]) -> Secured:
    it = Secured(server, make_token)
    answers = [
        it.call("PUT", "/admin/v2/tenants/acme", json={"adminRoles": ["boss"], "allowedClusters": ["standalone"]})
    ]
    answers.append(it.call("PUT", "/admin/v2/namespaces/acme/x"))
    for role, actions in GRANTS.items():
        answers.append(it.call("POST", f"/admin/v2/namespaces/acme/x/permissions/{role}", json=actions))
    assert [answer.status_code for answer in answers] == [204] * 5, [answer.text for answer in answers]
    return it


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Standalone with a secret key: the worker signs what its functions show."""
    directory = tmp_path_factory.mktemp("secured")
    config = directory / "standalone.yml"
    config.write_text(
        "authenticationEnabled: true\nauthenticationProviders: [token]\nauthorizationEnabled: true\n"
        f"superUserRoles: [admin]\ntokenSecretKey: '{data_url(SECRET)}'\n"
        "additionalEnabledFunctionsUrlPatterns: ['http://127.0.0.1:.*']\n"
    )
    with running("standalone", directory, "--config", str(config)) as server:
        it = prepared(server, token)
        yield it
        it.close()


def switch_on_deduplication(secured: Secured, topic: str) -> None:
    """Do what an administrator has to do before others deploy with EFFECTIVELY_ONCE."""
    path = f"/admin/v2/persistent/acme/x/{topic}"
    assert secured.call("PUT", path).status_code in (204, 409)
    answer = secured.call("POST", f"{path}/deduplicationEnabled", "boss", json=True)
    assert answer.status_code == 204, answer.text


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_function_works_as_who_deployed_it(secured: Secured, runtime: str) -> None:
    name = f"count-{runtime}"
    answer = secured.deploy(name, "alice", COUNT, runtimeEnv=runtime)
    assert answer.status_code == 204, answer.text
    assert secured.answers(name, "a", "b") == ["a1", "b2"]
    kept = partial(secured.call, "GET", f"/admin/v3/functions/acme/x/{name}/state/n", "alice")
    wait_for(lambda: kept().json()["numberValue"] == 2, "the state of both messages")
    assert secured.call("GET", f"/admin/v3/functions/acme/x/{name}/state/n", "carol").status_code == 401
    assert secured.call("GET", f"/admin/v3/functions/acme/x/{name}", None).status_code == 401


@pytest.mark.parametrize(
    "config",
    [
        {"processingGuarantees": "EFFECTIVELY_ONCE"},
        {"processingGuarantees": "ATMOST_ONCE"},
        {"logTopic": "persistent://acme/x/logs"},
        {"maxMessageRetries": 1, "deadLetterTopic": "persistent://acme/x/dead"},
        {"parallelism": 2},
    ],
)
def test_each_kind_of_function_works_with_the_rights_of_its_owner(secured: Secured, config: dict[str, Any]) -> None:
    name = f"copy-{abs(hash(json.dumps(config))) % 100_000}"
    switch_on_deduplication(secured, f"{name}-out")
    answer = secured.deploy(name, "alice", COPY, **config)
    assert answer.status_code == 204, answer.text
    assert secured.answers(name, "a") == ["a"]


def test_outputs_are_once_on_a_topic_with_partitions_of_who_is_no_administrator(secured: Secured) -> None:
    answer = secured.call("PUT", "/admin/v2/persistent/acme/x/parts-out/partitions", json=2)
    assert answer.status_code == 204, answer.text
    switch_on_deduplication(secured, "parts-out")
    answer = secured.deploy("parts", "alice", COPY, processingGuarantees="EFFECTIVELY_ONCE")
    assert answer.status_code == 204, answer.text
    assert sorted(secured.answers("parts", "a", "b")) == ["a", "b"]


def test_deployment_sets_no_policy_that_the_owner_may_not_set(secured: Secured) -> None:
    policy = "/admin/v2/persistent/acme/x/once-out/deduplicationEnabled"
    for exists in (False, True):
        if exists:
            secured.call("PUT", "/admin/v2/persistent/acme/x/once-out")
        refused = secured.deploy("once", "alice", COPY, processingGuarantees="EFFECTIVELY_ONCE")
        assert refused.status_code == 403, refused.text
        assert "set-deduplication acme/x --enable" in refused.json()["reason"]
        assert secured.call("GET", policy).text.strip() != "true"
    namespace = "/admin/v2/namespaces/acme/x/deduplication"
    assert secured.call("POST", namespace, "boss", json=True).status_code == 204
    for name in ("once", "once-more"):  # of which one has its topic already
        answer = secured.deploy(name, "alice", COPY, processingGuarantees="EFFECTIVELY_ONCE")
        assert answer.status_code == 204, answer.text
        assert secured.answers(name, "a") == ["a"]
    assert secured.call("GET", policy).text.strip() != "true"
    assert secured.call("DELETE", namespace, "boss").status_code == 204
    owned = secured.deploy("bosses", "boss", COPY, processingGuarantees="EFFECTIVELY_ONCE")
    assert owned.status_code == 204, owned.text


def test_function_is_refused_where_its_owner_may_not_use_its_topics(secured: Secured) -> None:
    for config, text in (
        ({"inputs": ["persistent://public/default/in"]}, "which may not consume from persistent://public/default/in"),
        ({"output": "persistent://public/default/out"}, "which may not produce to persistent://public/default/out"),
        ({"logTopic": "persistent://public/default/l"}, "which may not produce to persistent://public/default/l"),
        ({"inputs": [], "topicsPattern": "persistent://public/default/.*"}, "list the topics of the namespace"),
    ):
        answer = secured.deploy("refused", "alice", COPY, **config)
        assert (answer.status_code, "the function would run as 'alice'" in answer.text) == (403, True), answer.text
        assert text in answer.text
    answer = secured.deploy("refused", "bob", COPY)
    assert "run as 'bob', which may not consume from persistent://acme/x/refused-in" in answer.text
    assert secured.deploy("refused", "carol", COPY).status_code == 401
    assert secured.deploy("refused", "stranger", COPY).status_code == 401
    assert secured.call("GET", "/admin/v3/functions/acme/x/refused").status_code == 404


def test_pattern_in_no_spelling_takes_topics_of_others(secured: Secured) -> None:
    for pattern in ("[^/]*", ".*", "(a|b/c)", "x/y"):
        for namespace in ("public/default", "public/functions"):
            answer = secured.deploy(
                "patterned", "alice", COPY, inputs=[], topicsPattern=f"persistent://{namespace}/{pattern}"
            )
            assert answer.status_code in (400, 403), (namespace, pattern, answer.text)
    # Who may only produce there may list topics, but gets no subscription by the worker's hand.
    path = "/admin/v2/namespaces/acme/y"
    assert secured.call("PUT", path).status_code == 204
    assert secured.call("POST", f"{path}/permissions/alice", json=["produce"]).status_code == 204
    answer = secured.deploy("patterned", "alice", COPY, inputs=[], topicsPattern="persistent://acme/y/.*")
    assert (answer.status_code, "may not consume from" in answer.text) == (403, True), answer.text


def test_trigger_and_reset_do_nothing_that_the_sender_may_not(secured: Secured) -> None:
    assert secured.deploy("guarded", "alice", COPY).status_code == 204
    assert secured.answers("guarded", "a") == ["a"]
    path = "/admin/v3/functions/acme/x/guarded"
    message = {"data": (None, b"forged", "application/octet-stream")}
    refused = secured.call("POST", f"{path}/trigger", "bob", files=message)
    assert (refused.status_code, "you may not produce to" in refused.text) == (403, True), refused.text
    answer = secured.call("POST", f"{path}/trigger", "alice", files=message)
    assert (answer.status_code, answer.text) == (200, "forged")
    permissions = "/admin/v2/namespaces/acme/x/permissions/alice"
    assert secured.call("POST", permissions, json=["functions"]).status_code == 204
    try:
        # A worker hears of a right that is taken away within two seconds.
        reset = partial(secured.call, "POST", f"{path}/reset-cursor", "alice", json={"timestamp": 0})
        wait_for(lambda: reset().status_code == 403, "the refusal")
        assert "may not consume from" in reset().text
        assert secured.call("DELETE", path, "alice").status_code == 204
        stats = secured.call("GET", "/admin/v2/persistent/acme/x/guarded-in/stats").json()
        assert "acme/x/guarded" in stats["subscriptions"]  # its role could not have removed it
    finally:
        assert secured.call("POST", permissions, json=GRANTS["alice"]).status_code == 204


def test_packages_of_others_are_not_taken_by_name(secured: Secured) -> None:
    assert secured.call("PUT", "/admin/v2/namespaces/acme/z").status_code == 204
    files: Any = {"metadata": (None, json.dumps({"description": "d"}), "application/json"), "file": ("f.py", COPY)}
    sent = secured.call("POST", "/admin/v3/packages/function/acme/z/secret/v1", files=files)
    assert sent.status_code in (200, 204), sent.text
    config = {"tenant": "acme", "namespace": "x", "name": "thief", "runtime": "PYTHON", "className": "f", "py": "f.py"}
    full: dict[str, Any] = {
        **config,
        "inputs": ["persistent://acme/x/thief-in"],
        "output": "persistent://acme/x/thief-out",
    }
    parts = {
        "functionConfig": (None, json.dumps(full), "application/json"),
        "url": (None, "function://acme/z/secret@v1", "text/plain"),
    }
    answer = secured.call("POST", "/admin/v3/functions/acme/x/thief", "alice", files=parts)
    assert (answer.status_code, "not permitted to use packages of acme/z" in answer.text) == (403, True), answer.text
    assert secured.call("POST", "/admin/v3/functions/acme/x/thief", "boss", files=parts).status_code == 204


def test_nobody_deploys_in_the_name_of_others(secured: Secured) -> None:
    headers = {"Authorization": f"Bearer {token('alice')}", "X-Original-Principal": "admin"}
    config = {"tenant": "acme", "namespace": "x", "name": "posed", "runtime": "PYTHON", "className": "f", "py": "f.py"}
    full: dict[str, Any] = {
        **config,
        "inputs": ["persistent://acme/x/posed-in"],
        "output": "persistent://acme/x/posed-out",
    }
    files: Any = {"functionConfig": (None, json.dumps(full), "application/json"), "data": ("f.py", COPY)}
    url = f"{secured.server.web_url}/admin/v3/functions/acme/x/posed"
    assert httpx.post(url, headers=headers, files=files, timeout=60).status_code == 401


def test_code_of_one_role_never_runs_as_another(secured: Secured) -> None:
    assert secured.deploy("owned", "alice", COPY).status_code == 204
    answer = secured.deploy("owned", "boss", COPY + "# 1\n", "PUT")
    assert (answer.status_code, "the function runs as 'alice'" in answer.text) == (403, True)
    takes_over = {"updateAuthData": True}
    answer = secured.deploy("owned", "bob", COPY + "# 2\n", "PUT", updateOptions=takes_over)
    assert (answer.status_code, "would run as 'bob'" in answer.text) == (403, True)
    assert secured.deploy("owned", "boss", COPY + "# 3\n", "PUT", updateOptions=takes_over).status_code == 204
    assert secured.deploy("owned", "boss", COPY + "# 4\n", "PUT").status_code == 204
    assert secured.answers("owned", "a") == ["a"]
    # The first version was alice's, and is again when it is deployed again, whoever asks for it.
    rolled_back = secured.call("POST", "/admin/v3/functions/acme/x/owned/rollback?toVersion=0", "boss")
    assert rolled_back.status_code == 204, rolled_back.text
    assert secured.deploy("owned", "alice", COPY + "# 5\n", "PUT").status_code == 204


def test_topic_that_the_owner_may_not_use_is_refused_while_it_runs(secured: Secured) -> None:
    assert secured.deploy("publisher", "alice", PUBLISH).status_code == 204
    producer = secured.client("alice").create_producer("persistent://acme/x/publisher-in")
    producer.send(b"persistent://public/default/elsewhere")
    wait_for(lambda: "not authorized" in json.dumps(secured.status("publisher")), "the refusal in the status")
    topics = secured.call("GET", "/admin/v2/persistent/public/default").json()
    assert not any("elsewhere" in topic for topic in topics)


def test_right_that_is_taken_away_ends_the_function(secured: Secured) -> None:
    path = "/admin/v2/namespaces/acme/x/permissions/dave"
    assert secured.call("POST", path, json=["functions", "produce", "consume"]).status_code == 204
    assert secured.deploy("daves", "dave", COPY).status_code == 204
    assert secured.answers("daves", "a") == ["a"]
    assert secured.call("DELETE", path).status_code == 204
    secured.call("POST", "/admin/v3/functions/acme/x/daves/restart", "alice")
    wait_for(lambda: "not authorized" in secured.status("daves")["error"].lower(), "the reason in the status")


def test_letter_that_the_owner_may_no_longer_store_waits_for_the_right(secured: Secured) -> None:
    letters = "/admin/v2/namespaces/acme/letters"
    assert secured.call("PUT", letters).status_code in (204, 409)
    grant = f"{letters}/permissions/alice"
    assert secured.call("POST", grant, json=["produce"]).status_code == 204
    dead = "/admin/v2/persistent/acme/letters/dead"
    assert secured.call("PUT", dead).status_code == 204
    config: dict[str, Any] = {"maxMessageRetries": 0, "deadLetterTopic": "persistent://acme/letters/dead"}
    refused = secured.deploy("letters", "alice", RAISE, **config)
    assert refused.status_code == 403, refused.text
    assert "may not create a subscription on persistent://acme/letters/dead" in refused.json()["reason"]
    both = ["produce", "consume"]
    assert secured.call("POST", grant, json=both).status_code == 204
    answer = secured.deploy("letters", "alice", RAISE, **config)
    assert answer.status_code == 204, answer.text
    assert secured.call("DELETE", grant).status_code == 204
    producer = secured.client("alice").create_producer("persistent://acme/x/letters-in")
    producer.send(b"bad")
    wait_for(lambda: " dead letters in " in secured.status("letters")["error"], "the reason in the status")
    assert secured.answers("letters", "good") == ["good"]
    assert secured.call("POST", grant, json=both).status_code == 204
    wait_for(lambda: secured.call("GET", f"{dead}/stats").json()["msgInCounter"] == 1, "the letter")
    wait_for(lambda: secured.status("letters")["error"] == "", "a status without an error")


@pytest.mark.parametrize("end", ["token", "grant"])
def test_followed_log_ends_with_the_rights_of_who_follows_it(secured: Secured, end: str) -> None:
    name, role = f"followed-{end}", f"reader-{end}"
    path = f"/admin/v2/namespaces/acme/x/permissions/{role}"
    assert secured.call("POST", path, json=["functions"]).status_code == 204
    assert secured.deploy(name, "alice", COPY).status_code == 204
    assert secured.answers(name, "a") == ["a"]
    expiry = {"exp": int(time.time()) + 8} if end == "token" else {}
    headers = {"Authorization": f"Bearer {secured.make_token(role, **expiry)}"}
    url = f"{secured.server.web_url}/admin/v3/functions/acme/x/{name}/logs?follow=true"
    lines = []
    with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        if end == "grant":
            assert secured.call("DELETE", path).status_code == 204
        lines = list(answer.iter_lines())
    reason = "have expired" if end == "token" else "not authorized"
    assert lines[-1].startswith("the log ends here: ")
    assert reason in lines[-1].lower()


def test_locks_of_functions_are_held_by_their_owners_only(secured: Secured) -> None:
    topic, how = "persistent://public/functions/instances", {"consumer_type": pulsar.ConsumerType.Exclusive}
    for role, name in (("carol", "acme/x/f:0"), ("alice", "other/x/f:0"), ("alice", "acme/xx/f:0"), ("alice", "f")):
        with pytest.raises(pulsar.PulsarException):
            secured.client(role).subscribe(topic, name, **how)
    # Official clients make durable subscriptions, which would stay: no lock is one.
    with pytest.raises(pulsar.PulsarException):
        secured.client("alice").subscribe(topic, "acme/x/f:0", **how)
    with pytest.raises(pulsar.PulsarException):
        secured.client("alice").create_producer(topic)
    with pytest.raises(pulsar.PulsarException):
        secured.client("alice").subscribe("persistent://public/functions/metadata", "acme/x/f:0")


@contextmanager
def package_server(content: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A web server with one file; yields its address, and the headers that it is sent."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/f.py", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_worker_shows_nothing_where_a_package_comes_from(secured: Secured) -> None:
    with package_server(COPY) as (url, seen):
        config = {"tenant": "acme", "namespace": "x", "name": "fetched", "runtime": "PYTHON", "className": "f"}
        config |= {"py": "f.py", "output": "persistent://acme/x/fetched-out"}
        full: dict[str, Any] = {**config, "inputs": ["persistent://acme/x/fetched-in"]}
        files = {"functionConfig": (None, json.dumps(full), "application/json"), "url": (None, url, "text/plain")}
        answer = secured.call("POST", "/admin/v3/functions/acme/x/fetched", "alice", files=files)
    assert answer.status_code == 204, answer.text
    assert seen
    assert not any("authorization" in headers for headers in seen)


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Standalone with a public key: functions show the token that they were deployed with."""
    directory = tmp_path_factory.mktemp("keyless")
    key = rsa_key()

    def make_token(role: str, **claims: Any) -> str:
        return token(role, key, "RS256", **claims)

    (directory / "public.der").write_bytes(public_der(key))
    (directory / "own.token").write_text(make_token("admin"))
    config = directory / "standalone.yml"
    config.write_text(
        "authenticationEnabled: true\nauthenticationProviders: [token]\nauthorizationEnabled: true\n"
        f"superUserRoles: [admin]\ntokenPublicKey: file://{directory}/public.der\n"
        f"brokerClientAuthenticationPlugin: token\n"
        f"brokerClientAuthenticationParameters: file://{directory}/own.token\n"
    )
    with running("standalone", directory, "--config", str(config)) as server:
        it = prepared(server, make_token)
        yield it
        it.close()


def test_function_shows_the_token_that_it_was_deployed_with(keyless: Secured) -> None:
    assert keyless.deploy("shown", "alice", COUNT).status_code == 204
    assert keyless.answers("shown", "a") == ["a1"]
    found = keyless.call("GET", "/admin/v3/functions/acme/x/shown")
    assert keyless.make_token("alice") not in found.text
    status = keyless.call("GET", "/admin/v3/functions/acme/x/shown/status").json()
    assert "authDataExpiresMs" not in status  # that token never ends
    ending = replace(keyless, make_token=partial(keyless.make_token, exp=LATER_S))
    renewed = ending.deploy("shown", "alice", COUNT + "# 1\n", "PUT", updateOptions={"updateAuthData": True})
    assert renewed.status_code == 204, renewed.text
    status = ending.call("GET", "/admin/v3/functions/acme/x/shown/status").json()
    assert status["authDataExpiresMs"] == LATER_S * 1000
    assert ending.answers("shown", "a") == ["a2"]


def test_worker_without_anything_to_show_does_not_start(tmp_path: Path) -> None:
    from tests.support.command import call

    (tmp_path / "public.der").write_bytes(public_der(rsa_key()))
    config = tmp_path / "standalone.yml"
    config.write_text(
        f"authenticationEnabled: true\nauthenticationProviders: [token]\ntokenPublicKey: file://{tmp_path}/public.der\n"
    )
    answer = call("standalone", "--data-dir", str(tmp_path / "data"), "--config", str(config), "--broker-port", "0",
                  "--web-port", "0", "--worker-port", "0", "--state-port", "0")  # fmt: skip
    assert answer.code != 0
    assert "this worker has no credentials for the broker" in answer.err
