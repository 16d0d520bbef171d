"""Servers behind other addresses than their own: flags, files, TLS with a certificate that names a host, workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from magnetar.cli.failure import Faults
from magnetar.cli.main import main
from magnetar.cli.servers.broker import broker_configs
from magnetar.cli.servers.config_file import BROKER_KEYS, STANDALONE_KEYS, WORKER_KEYS
from magnetar.cli.servers.server_file import read_server_file
from magnetar.cli.servers.standalone import own_broker_configs
from magnetar.cli.servers.worker import settled_hosts

from tests.support.certificates import Authority
from tests.support.command import call
from tests.support.ports import Reserved
from tests.support.servers import running

FLAGS: dict[str, Any] = {"data_dir": "d", "salvage": False, "insecure": False}
LOOKUP = "/lookup/v2/topic/persistent/public/default/t"


def read(tmp_path: Path, text: str, keys: Any = BROKER_KEYS, *tables: str) -> dict[str, dict[str, Any]]:
    path = tmp_path / "a.conf"
    path.write_text(text)
    return read_server_file(str(path), keys, *(tables or ("broker",)))


def test_file_and_flag_set_the_advertised_address(tmp_path: Path) -> None:
    text = "advertisedAddress=broker.example.com\n"
    in_file = read(tmp_path, text)
    config, _ = broker_configs(FLAGS, in_file)
    assert config.advertised_address == "broker.example.com"
    config, _ = broker_configs({**FLAGS, "advertised_address": "other"}, in_file)
    assert config.advertised_address == "other"


def test_listeners_of_a_file(tmp_path: Path) -> None:
    text = (
        "advertisedListeners=in:pulsar://a:6650,out:pulsar://b:16650\ninternalListenerName=out\n"
        "bindAddresses=out:pulsar://127.0.0.1:16650\n"
    )
    config, _ = broker_configs(FLAGS, read(tmp_path, text))
    assert config.advertised_listeners == {"in": {"pulsar": "pulsar://a:6650"}, "out": {"pulsar": "pulsar://b:16650"}}
    assert config.internal_listener == "out"
    assert [str(one) for one in config.bind_addresses] == ["out:pulsar://127.0.0.1:16650"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "advertisedAddress=pulsar://h:1",
            "advertisedAddress: invalid value 'pulsar://h:1': host 'pulsar://h:1' is not a",
        ),
        ("advertisedListeners=a", "advertisedListeners: 'a' is malformed (missing listener name)"),
        (
            "advertisedListeners=a:pulsar://h:1\ninternalListenerName=b",
            "internalListenerName 'b' is not in advertisedL",
        ),
        ("bindAddresses=a:pulsar://h:1", "bindAddresses: listener 'a' is not in advertisedListeners, which is not set"),
    ],
)
def test_wrong_addresses_of_a_file_are_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(Faults) as caught:
        read(tmp_path, text)
    [line] = caught.value.lines
    assert reason in line


def test_wrong_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--advertised-address", "h:6650"]) == 1
    assert "--advertised-address 'h:6650' is not a host name or an IP address" in capsys.readouterr().err


def test_bind_address_that_others_reach_needs_insecure_or_authentication(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("advertisedListeners=a:pulsar://h:1\nbindAddresses=a:pulsar://192.0.2.7:0\n")
    assert main(["broker", "--config", str(path), "--data-dir", str(tmp_path / "data")]) == 1
    assert "192.0.2.7 is reachable from other machines" in capsys.readouterr().err


def test_standalone_gives_its_worker_a_socket_of_its_own_only_where_addresses_are_advertised(tmp_path: Path) -> None:
    tables = ("broker", "worker")
    plain = read(tmp_path, "clusterName=c\n", STANDALONE_KEYS, *tables)
    assert own_broker_configs(FLAGS, plain, has_worker=True)[0].bind_addresses == ()
    advertised = read(tmp_path, "advertisedAddress=broker.example.com\n", STANDALONE_KEYS, *tables)
    assert own_broker_configs(FLAGS, advertised, has_worker=False)[0].bind_addresses == ()
    [own] = own_broker_configs(FLAGS, advertised, has_worker=True)[0].bind_addresses
    assert (own.scheme, own.host, own.port) == ("pulsar", "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("text", "flags", "host", "advertised"),
    [
        ("workerHostname=w1.example.com", {}, "w1.example.com", "w1.example.com"),
        ("workerHostname=w1.example.com", {"host": "0.0.0.0"}, "0.0.0.0", "w1.example.com"),
        ("workerHostname=w1.example.com\nbindAddress=0.0.0.0", {}, "0.0.0.0", "w1.example.com"),
        ("workerHostname=w1.example.com", {"host": "0.0.0.0", "advertised_host": "w2"}, "0.0.0.0", "w2"),
        ("workerHostname=localhost", {}, "localhost", "localhost"),
        ("workerHostname=localhost", {"host": "192.0.2.7"}, "192.0.2.7", ""),
        ("workerId=w", {"advertised_host": "w2"}, "127.0.0.1", "w2"),
        ("workerId=w", {}, "127.0.0.1", ""),
    ],
)
def test_worker_tells_its_host_name_and_listens_where_it_should(
    tmp_path: Path, text: str, flags: dict[str, str], host: str, advertised: str
) -> None:
    in_file = read(tmp_path, text, WORKER_KEYS, "worker")["worker"]
    assert settled_hosts(in_file, flags) == {"host": host, "advertised_host": advertised}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_everything_names_the_advertised_address_and_functions_run(tmp_path: Path) -> None:
    """The advertised host is not reachable from here, as behind NAT: standalone's own worker must not need it."""
    with running("standalone", tmp_path, "--advertised-address", "broker.invalid") as it:
        web, broker_port = str(it.web_url), str(it.service_url).rpartition(":")[2]
        web_port = web.rpartition(":")[2]
        own_id = f"broker.invalid:{web_port}"
        with httpx.Client(base_url=web, timeout=60) as rest:
            found = rest.get(LOOKUP).json()
            assert found["brokerUrl"] == found["nativeUrl"] == f"pulsar://broker.invalid:{broker_port}"
            assert found["httpUrl"] == f"http://{own_id}"
            assert rest.get("/admin/v2/brokers").json() == [own_id]
            assert rest.get("/admin/v2/brokers/standalone").json() == [own_id]
            leader = rest.get("/admin/v2/brokers/leaderBroker").json()
            assert leader == {"serviceUrl": f"http://{own_id}", "brokerId": own_id}
            assert rest.get(f"/admin/v2/brokers/standalone/{own_id}/ownedNamespaces").status_code == 200
            cluster = rest.get("/admin/v2/clusters/standalone").json()
            assert cluster["brokerServiceUrl"] == f"pulsar://broker.invalid:{broker_port}"
            assert rest.get("/admin/v2/brokers/ready", headers={"host": own_id}).status_code == 200
            refused = rest.get(LOOKUP, params={"listenerName": "nope"})
            assert (refused.status_code, refused.json()["reason"]) == (400, "the broker do not have nope listener")
        (tmp_path / "f.py").write_text("def process(input):\n    return input\n")
        create = ("functions", "create", "--py", str(tmp_path / "f.py"), "--classname", "f.process")
        call(*create, "--inputs", "a", "--name", "f", admin_url=web).ok()
        state = call("functions", "status", "--name", "f", "-o", "json", admin_url=web).ok().json()
        assert state["numInstances"] == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_listeners_with_a_certificate_that_names_a_host(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("server", hosts=("localhost",))  # not 127.0.0.1
    reserved = Reserved(3)
    plain, tls, web = reserved.numbers
    config = tmp_path / "broker.conf"
    config.write_text(
        f"advertisedListeners=internal:pulsar://127.0.0.1:1,external:pulsar+ssl://localhost:{tls},"
        f"external:pulsar://localhost:{plain},external:http://localhost:{web}\ninternalListenerName=internal\n"
        f"bindAddresses=external:pulsar+ssl://127.0.0.1:{tls},external:pulsar://127.0.0.1:{plain},"
        f"external:http://127.0.0.1:{web}\n"
        f"tlsCertificateFilePath={server.file}\ntlsKeyFilePath={server.key_file}\n"
    )
    with running("broker", tmp_path / "data", "--config", str(config)) as it:
        by_listener = httpx.get(f"http://localhost:{web}{LOOKUP}").json()
        assert by_listener["brokerUrl"] == f"pulsar://localhost:{plain}"
        assert by_listener["brokerUrlTls"] == f"pulsar+ssl://localhost:{tls}"
        assert by_listener["httpUrl"] == f"http://localhost:{web}"
        asked = httpx.get(f"{it.web_url}{LOOKUP}", headers={"X-Pulsar-ListenerName": "external"}).json()
        assert asked["brokerUrlTls"] == f"pulsar+ssl://localhost:{tls}"
        assert httpx.get(f"{it.web_url}{LOOKUP}").json()["brokerUrl"] == "pulsar://127.0.0.1:1"
        trusted = {"tls_trust_certs_file_path": str(authority.file), "tls_validate_hostname": True}
        for url, options in (
            (f"pulsar+ssl://localhost:{tls}", trusted),  # its listener is the socket's
            (f"pulsar://localhost:{plain}", {}),
            (str(it.service_url), {"listener_name": "external"}),
        ):
            client = pulsar.Client(url, operation_timeout_seconds=30, **options)
            try:
                consumer = client.subscribe("t", f"s-{url}")
                client.create_producer("t").send(b"x")
                assert consumer.receive(20_000).data() == b"x"
            finally:
                client.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_worker_is_known_by_its_advertised_address(tmp_path: Path) -> None:
    with running("broker", tmp_path / "broker") as it:
        urls = ("--service-url", str(it.service_url), "--admin-url", str(it.web_url))
        with running("worker", tmp_path / "worker", "--advertised-address", "localhost", *urls):
            [worker] = call("functions-worker", "get-cluster", "-o", "json", admin_url=it.web_url).ok().json()
            assert worker["workerHostname"] == "localhost"
