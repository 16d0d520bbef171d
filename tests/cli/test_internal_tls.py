"""Settings of TLS between our own processes: each works, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.failure import Faults
from magnetar.cli.servers.broker import broker_configs
from magnetar.cli.servers.config_file import BROKER_KEYS, STANDALONE_KEYS, STATE_KEYS, WORKER_KEYS
from magnetar.cli.servers.server_file import read_server_file
from magnetar.cli.servers.state_store import tls_of
from magnetar.cli.servers.worker import worker_config
from magnetar.errors import InvalidConfig
from magnetar.security.server_tls_settings import ServerTls
from magnetar.worker.config import WorkerConfig

from tests.support.certificates import Authority
from tests.support.command import call

FILES = "tlsCertificateFilePath: /s.pem\ntlsKeyFilePath: /s.key\n"
TLS = f"{FILES}tlsEnabled: true\nworkerPortTls: 6751\n"


def worker(tmp_path: Path, text: str, **flags: Any) -> WorkerConfig:
    path = tmp_path / "functions_worker.yml"
    path.write_text(text)
    in_file = read_server_file(str(path), WORKER_KEYS, "worker")
    urls = {"service_url": "pulsar://h:6650", "admin_url": "http://h:8080"}
    return worker_config(in_file, {**urls, **in_file["worker"], **flags}, tmp_path)


def test_worker_with_a_port_for_tls_has_another_only_if_it_is_named(tmp_path: Path) -> None:
    ports = [
        (config.worker_port, config.worker_tls_port)
        for config in (
            worker(tmp_path, ""),
            worker(tmp_path, TLS),
            worker(tmp_path, f"{TLS}workerPort: 6750\n"),
            worker(tmp_path, TLS, worker_port=0),
            worker(tmp_path, TLS.replace("true", "false")),
        )
    ]
    assert ports == [(6750, None), (None, 6751), (6750, 6751), (0, 6751), (6750, None)]
    with pytest.raises(InvalidConfig, match="neither workerPort nor tlsEnabled with workerPortTls is set"):
        WorkerConfig(service_url="pulsar://h", admin_url="http://h", data_dir=tmp_path, worker_port=None)


def test_tls_without_a_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="tlsEnabled: 'true' requires a port: set workerPortTls"):
        worker(tmp_path, "tlsEnabled: true\n")


def test_hostname_verification_counts_where_workers_or_the_state_store_have_tls(tmp_path: Path) -> None:
    off = "tlsEnableHostnameVerification: false\n"  # as in Pulsar's file
    assert worker(tmp_path, off).client_security.tls_hostname_verification
    assert not worker(tmp_path, TLS + off).client_security.tls_hostname_verification
    state = "stateStorageServiceUrl: bk+ssl://h:4181\n"
    worker(tmp_path, state + off)  # Pulsar's default is not an error; the state store's name is verified all the same
    with pytest.raises(InvalidConfig, match=r"bk\+ssl://h:4181: tlsAllowInsecureConnection is not supported"):
        worker(tmp_path, state + "tlsAllowInsecureConnection: true\n")


@pytest.mark.parametrize("text", [TLS, "stateStorageServiceUrl: bk+ssl://h:4181\n"], ids=["workers", "state store"])
def test_a_broker_without_tls_is_asked_without_the_settings_of_it(text: str, tmp_path: Path) -> None:
    config = worker(tmp_path, f"{text}brokerClientTrustCertsFilePath: /ca.pem\n")
    assert config.client_security.tls_trust_certs_file == "/ca.pem"
    assert config.broker_security.tls_settings == ()


def test_state_store_reads_keys_of_tls_by_the_names_of_brokers(tmp_path: Path) -> None:
    path = tmp_path / "state.yml"
    path.write_text(f"{FILES}tlsCertRefreshCheckDurationSec: 5\n")
    read = read_server_file(str(path), STATE_KEYS)
    assert tls_of(read) == ServerTls(certificate_file="/s.pem", key_file="/s.key", refresh_check_s=5)
    path.write_text("bindAddress: 127.0.0.1\n")
    assert tls_of(read_server_file(str(path), STATE_KEYS)) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tlsCertificateFilePath: /s.pem\n", "TLS of the state store requires tlsKeyFilePath"),
        ("tlsCertRefreshCheckDurationSec: 5\n", "TLS of the state store requires tlsCertificateFilePath"),
        (FILES, "tlsCertificateFilePath: cannot read /s.pem"),
        (f"{FILES}tlsCiphers: X\n", "tlsCiphers is not supported by the state store"),
    ],
)
def test_state_store_refuses_what_does_not_work_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    config = tmp_path / "state.yml"
    config.write_text(text)
    call("state-store", "--data-dir", str(tmp_path / "data"), "--state-port", "0", "--config", str(config)).refused(
        reason
    )


@pytest.mark.parametrize("is_required", [False, True])
def test_certificates_of_clients_guard_a_state_store_that_others_reach(is_required: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    trust = f"tlsTrustCertsFilePath: {authority.file}\ntlsRequireTrustedClientCertOnConnect: true\n"
    config = tmp_path / "state.yml"
    config.write_text(f"bindAddress: 0.0.0.0\ntlsKeyFilePath: /nowhere\n{trust if is_required else ''}")
    run = call("state-store", "--data-dir", str(tmp_path / "data"), "--state-port", "0", "--config", str(config))
    run.refused("requires tlsCertificateFilePath" if is_required else "0.0.0.0 is reachable from other machines")


def test_broker_is_told_whom_to_trust_and_whether_workers_need_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerClientTlsEnabled=true\nbrokerClientTrustCertsFilePath=/ca.pem\n")
    flags = dict.fromkeys(("host", "broker_port", "web_port", "allowed_hosts")) | {"data_dir": "d", "salvage": False}
    config, _ = broker_configs(flags, read_server_file(str(path), BROKER_KEYS, "broker"))
    assert (config.asks_by_tls_only, config.client_security.tls_trust_certs_file) == (True, "/ca.pem")
    read_server_file(str(path), STANDALONE_KEYS, "broker", "worker")
    assert "brokerClientTlsEnabled=true has no effect: standalone's worker listens without TLS" in caplog.text
