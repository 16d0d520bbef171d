"""Workers that ask each other with TLS: alone, beside older ones without, and what is refused."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.errors import MagnetarError
from magnetar.membership.manager import TLS_PORT
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.security.server_tls_settings import ServerTls
from magnetar.worker.config import WorkerConfig
from magnetar.worker.service import WorkerService

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.pulsar import Broker, own_name

from .conftest import Cluster, worker_config

pytestmark = pytest.mark.slow

EXCLAIM = "def process(input):\n    print('got', input)\n    return f'{input}!'\n"
Start = Callable[..., Awaitable[WorkerService]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def make(broker: Broker, tmp_path: Path, authority: Authority) -> Callable[..., WorkerConfig]:
    """Settings of a worker in a namespace that no other test has."""
    namespace = f"public/functions{own_name('')}"

    def made(worker_id: str, *, tls: bool, trusted: Authority | None = None, **settings: Any) -> WorkerConfig:
        config = worker_config(broker, tmp_path / worker_id, namespace, worker_id)
        if tls:
            host = settings.pop("certificate_host", "127.0.0.1")
            certificate = authority.issue(f"{worker_id}-{host}", [host])
            config = replace(
                config,
                worker_tls_port=0,
                tls=ServerTls(certificate_file=str(certificate.file), key_file=str(certificate.key_file)),
                client_security=ClientSecurity(tls_trust_certs_file=str((trusted or authority).file)),
            )
        return replace(config, **settings)

    return made


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def started(config: WorkerConfig) -> WorkerService:
            service = WorkerService(config)
            stack.push_async_callback(service.stop)
            await service.start()
            return service

        yield started


@pytest.fixture
async def view(broker: Broker, authority: Authority) -> AsyncIterator[Callable[[WorkerService], Cluster]]:
    """Makes the view that clients of one worker have."""
    trusting = ssl.create_default_context(cafile=str(authority.file))
    trusting.check_hostname = False  # some tests have certificates of another host
    shown = authority.issue("viewer", [])
    trusting.load_cert_chain(shown.file, shown.key_file)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient(broker.service_url))
        https = []

        def of(service: WorkerService) -> Cluster:
            https.append(httpx.AsyncClient(base_url=service.worker_url, timeout=60, verify=trusting))
            stack.push_async_callback(https[-1].aclose)
            return Cluster(service, broker, https[-1], client, service.config.functions_namespace.replace("/", "-"))

        yield of


async def test_workers_with_tls_alone_hand_over_and_ask_each_other(
    make: Callable[..., WorkerConfig], start: Start, view: Callable[[WorkerService], Cluster]
) -> None:
    first = await start(make("first", tls=True, worker_port=None))
    second = await start(make("second", tls=True, worker_port=None))
    for service in (first, second):
        assert service.worker_url == service.worker_tls_url
        assert service.worker_url.startswith("https://127.0.0.1:")
    for number, cluster in enumerate((view(first), view(second))):
        name = f"fn{number}"
        created = await cluster.create(
            name, EXCLAIM, inputs=[cluster.topic(name)], output=cluster.topic(f"{name}-out"), parallelism=2
        )
        assert (created.status_code, created.text) == (204, "")

        async def is_spread(cluster: Cluster = cluster, name: str = name) -> bool:
            instances = (await cluster.get(f"{name}/status"))["instances"]
            return sorted(one["status"]["workerId"] for one in instances if one["status"]["running"]) == [
                "first",
                "second",
            ]

        await eventually(is_spread, "an instance on each worker")
        path = f"/admin/v3/functions/public/default/{name}/trigger"
        answer = await cluster.http.post(path, files={"data": (None, "x")})
        assert answer.text == "x!"

        async def is_logged(cluster: Cluster = cluster, name: str = name) -> bool:
            return "got x" in (await cluster.http.get(f"/admin/v3/functions/public/default/{name}/logs")).text

        await eventually(is_logged, "the line of whichever worker runs it")
    answers = [await view(one).http.put("/admin/v2/worker/rebalance") for one in (first, second)]
    assert sorted(answer.status_code for answer in answers) == [204, 307]
    (location,) = [answer.headers["location"] for answer in answers if answer.status_code == 307]
    assert location.startswith((f"{first.worker_url}/admin/", f"{second.worker_url}/admin/"))


async def test_workers_without_tls_go_on_beside_those_that_have_both_ports(
    make: Callable[..., WorkerConfig], start: Start, view: Callable[[WorkerService], Cluster]
) -> None:
    plain = await start(make("plain", tls=False))
    both = await start(make("both", tls=True))
    assert both.worker_url.startswith("http://")
    assert both.worker_tls_url.startswith("https://")
    for number, cluster in enumerate((view(plain), view(both))):
        name = f"fn{number}"
        assert (await cluster.create(name, EXCLAIM, inputs=[cluster.topic(name)], parallelism=2)).status_code == 204

        async def is_spread(cluster: Cluster = cluster, name: str = name) -> bool:
            status = await cluster.get(f"{name}/status")
            return sorted(one["status"]["workerId"] for one in status["instances"] if one["status"]["running"]) == [
                "both",
                "plain",
            ]

        await eventually(is_spread, "each worker tells of the other's instance")


async def test_worker_with_tls_alone_does_not_join_workers_without(
    make: Callable[..., WorkerConfig], start: Start
) -> None:
    plain = await start(make("plain", tls=False))
    with pytest.raises(MagnetarError) as caught:
        await start(make("alone", tls=True, worker_port=None))
    assert str(caught.value) == (
        f"worker plain at {plain.worker_url} has no TLS, but this worker has no workerPort and sends requests only over"
        " TLS: set tlsEnabled and workerPortTls on that worker, or set a workerPort for this worker until then"
    )


async def test_worker_without_tls_that_joins_later_is_named_where_it_would_be_asked(
    make: Callable[..., WorkerConfig], start: Start, view: Callable[[WorkerService], Cluster]
) -> None:
    alone = view(await start(make("alone", tls=True, worker_port=None)))
    plain = view(await start(make("plain", tls=False)))
    follower = await follower_of({"alone": alone, "plain": plain})  # which of them leads is decided by their ports

    async def leads() -> bool:
        leader = plain if follower is alone else alone
        return (await leader.http.get("/admin/v2/worker/cluster/leader/ready")).text == "true"

    await eventually(leads, "a leader")
    made = await alone.create("f", EXCLAIM, inputs=[alone.topic("f")], parallelism=2)
    if follower is alone:
        assert made.status_code == 503
        assert "worker plain at http://" in made.json()["reason"]
        return
    assert made.status_code == 204

    async def is_named() -> bool:
        status = await alone.get("f/status")
        return any("worker plain at http://" in one["status"]["error"] for one in status["instances"])

    await eventually(is_named, "the worker that has no TLS")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"trusted": "other"}, "unable to get local issuer certificate: set "),
        ({"certificate_host": "elsewhere.example"}, "not valid for '127.0.0.1': connect with a host"),
    ],
    ids=["authority", "host"],
)
async def test_leader_whose_certificate_does_not_count_is_given_no_request(
    settings: dict[str, str],
    reason: str,
    make: Callable[..., WorkerConfig],
    start: Start,
    view: Callable[[WorkerService], Cluster],
    tmp_path: Path,
) -> None:
    host = {name: value for name, value in settings.items() if name == "certificate_host"}
    trusted = Authority(tmp_path / "other", "Other CA") if "trusted" in settings else None
    common = {"tls": True, "worker_port": None, "trusted": trusted, "request_timeout_s": 8.0, **host}
    views = {name: view(await start(make(name, **common))) for name in ("first", "second")}
    follower = await follower_of(views)
    answer = await follower.create("f", EXCLAIM, inputs=[follower.topic("f")])
    assert answer.status_code == 503
    assert reason in answer.json()["reason"]
    assert "brokerClientTrustCertsFilePath" in answer.json()["reason"] or trusted is None


@pytest.mark.parametrize("is_shown", [True, False], ids=["certificate", "none"])
async def test_worker_that_asks_for_certificates_is_asked_by_workers_that_have_one(
    is_shown: bool,
    make: Callable[..., WorkerConfig],
    start: Start,
    view: Callable[[WorkerService], Cluster],
    authority: Authority,
) -> None:
    def mutual(worker_id: str) -> WorkerConfig:
        config = make(worker_id, tls=True, worker_port=None)
        tls, security = config.tls, config.client_security
        if is_shown:
            security = replace(security, tls_certificate_file=tls.certificate_file, tls_key_file=tls.key_file)
        else:
            config = replace(config, request_timeout_s=8.0)
        tls = replace(tls, trust_certs_file=str(authority.file), requires_client_certificate=True)
        return replace(config, tls=tls, client_security=security)

    names = ("first", "second")
    follower = await follower_of({name: view(await start(mutual(name))) for name in names})
    answer = await follower.create("f", EXCLAIM, inputs=[follower.topic("f")])
    assert answer.status_code == (204 if is_shown else 503), answer.text
    assert is_shown or "certificate" in answer.json()["reason"]


async def follower_of(views: dict[str, Cluster]) -> Cluster:
    """The one of two workers that does not lead, once both agree on that."""
    leaders: set[str] = set()

    async def is_agreed() -> bool:
        answers = [await one.http.get("/admin/v2/worker/cluster/leader") for one in views.values()]
        leaders.clear()
        leaders.update(answer.json().get("workerId", "") if answer.is_success else "" for answer in answers)
        return len(leaders) == 1 and "" not in leaders

    await eventually(is_agreed, "one leader")
    (follower,) = [one for name, one in views.items() if name not in leaders]
    return follower


async def test_membership_tells_the_port_with_tls_and_the_name_the_one_without(
    make: Callable[..., WorkerConfig], start: Start, broker: Broker
) -> None:
    both = await start(make("both", tls=True))
    topic = f"{both.config.functions_namespace}/coordinate"
    async with httpx.AsyncClient() as http:
        stats = (await http.get(f"{broker.web_url}/admin/v2/persistent/{topic}/stats")).json()
    (consumer,) = stats["subscriptions"]["participants"]["consumers"]
    assert f"http://{consumer['consumerName'].partition(':')[2]}" == both.worker_url
    assert consumer["metadata"][TLS_PORT] == both.worker_tls_url.rpartition(":")[2]
