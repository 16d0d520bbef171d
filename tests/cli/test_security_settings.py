"""Settings of TLS and authentication in a server's file, and servers that speak TLS by them."""

from __future__ import annotations

import dataclasses
import json
import ssl
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from magnetar.cli.failure import Failure, Faults
from magnetar.cli.servers.config_file import BROKER_KEYS, WORKER_KEYS
from magnetar.cli.servers.server_file import read_server_file
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.security.server_tls_settings import ServerTls

from ..support.certificates import Authority
from ..support.servers import running

BROKER = """
brokerServicePortTls=6651
webServicePortTls=8443
tlsCertificateFilePath=/s/server.pem
tlsKeyFilePath=/s/server.key.pem
tlsTrustCertsFilePath=/s/ca.pem
tlsRequireTrustedClientCertOnConnect=true
tlsCrlFilePath=/s/crl.pem
tlsProtocols=TLSv1.3
tlsCiphers=ECDHE-RSA-AES128-GCM-SHA256,ECDHE-RSA-AES256-GCM-SHA384
tlsCertRefreshCheckDurationSec=5
authenticationEnabled=false
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken,tls
tokenSecretKey=file:///s/secret
tokenAuthClaim=name
tokenAudienceClaim=aud
tokenAudience=here
tokenAllowedClockSkewSeconds=3
anonymousUserRole=anon
proxyRoles=proxy,gateway
authenticateOriginalAuthData=true
authenticationRefreshCheckSeconds=7
authenticateMetricsEndpoint=true
"""
WORKER = """
tlsEnabled: true
workerPortTls: 6751
authenticationProviders: [token]
properties: {tokenSecretKey: 'data:;base64,AAAA', tokenPublicAlg: ES256, badgeFile: /s/badges}
"""


def read(tmp_path: Path, text: str, name: str) -> dict[str, dict[str, Any]]:
    path = tmp_path / name
    path.write_text(text)
    keys, pulsar_file = (WORKER_KEYS, "worker") if name.endswith("yml") else (BROKER_KEYS, "broker")
    return read_server_file(str(path), keys, pulsar_file)


def fault(tmp_path: Path, text: str, name: str = "broker.conf") -> str:
    with pytest.raises(Faults) as caught:
        read(tmp_path, text, name)
    (line,) = caught.value.lines
    return line.split(f"{name}: ", 1)[1]


def test_a_broker_reads_all_keys_of_tls_and_authentication(tmp_path: Path) -> None:
    found = read(tmp_path, BROKER, "broker.conf")
    assert (found["broker"]["broker_tls_port"], found["broker"]["web_tls_port"]) == (6651, 8443)
    assert ServerTls(**found["tls"]) == ServerTls(
        certificate_file="/s/server.pem", key_file="/s/server.key.pem", trust_certs_file="/s/ca.pem",
        requires_client_certificate=True, crl_file="/s/crl.pem", protocols=("TLSv1.3",),
        ciphers=("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"), refresh_check_s=5,
    )  # fmt: skip
    assert ServerSecurity(**found["security"]) == ServerSecurity(
        providers=("org.apache.pulsar.broker.authentication.AuthenticationProviderToken", "tls"),
        token_secret_key="file:///s/secret", token_auth_claim="name", token_audience_claim="aud",
        token_audience="here", token_clock_skew_s=3, anonymous_role="anon", proxy_roles=("proxy", "gateway"),
        authenticate_original=True, refresh_check_s=7, authenticate_metrics=True,
    )  # fmt: skip


def test_a_worker_takes_keys_of_tokens_below_properties(tmp_path: Path) -> None:
    found = read(tmp_path, WORKER, "functions_worker.yml")
    assert found["worker"]["worker_tls_port"] == 6751
    security = ServerSecurity(**found["security"])
    assert (security.token_secret_key, security.token_public_alg) == ("data:;base64,AAAA", "ES256")
    assert security.properties == {"badgeFile": "/s/badges"}
    assert "worker_tls_port" not in read(tmp_path, WORKER.replace("true", "false"), "functions_worker.yml")["worker"]


def test_who_may_do_what_and_what_workers_show_is_taken_too(tmp_path: Path) -> None:
    text = (
        "authenticationEnabled: true\nauthorizationEnabled: true\nsuperUserRoles: [admin, root]\nproxyRoles: [proxy]\n"
        "authorizationAllowWildcardsMatching: true\nbrokerClientAuthenticationPlugin: token\n"
        "brokerClientAuthenticationParameters: token:hidden\nbrokerClientTrustCertsFilePath: /ca.pem\n"
    )
    found = read(tmp_path, text, "functions_worker.yml")
    assert AuthorizationSettings(**found["authorization"]) == AuthorizationSettings(
        is_enabled=True, super_user_roles=("admin", "root"), proxy_roles=("proxy",), allows_wildcards=True
    )
    client = ClientSecurity(**found["client"])
    assert (client.auth_plugin, client.auth_params, client.tls_trust_certs_file) == ("token", "token:hidden", "/ca.pem")
    off = read(tmp_path, text + "brokerClientAuthenticationEnabled: false\n", "functions_worker.yml")
    assert off["client"] == {"tls_trust_certs_file": "/ca.pem"}


def test_a_prefix_may_stand_before_the_names_of_settings_of_tokens(tmp_path: Path) -> None:
    found = read(
        tmp_path, "tokenSettingPrefix=my\nmytokenSecretKey=file:///s/secret\nmytokenAudience=here\n", "broker.conf"
    )
    assert found["security"] == {"token_secret_key": "file:///s/secret", "token_audience": "here"}
    below = "properties: {tokenSettingPrefix: my, mytokenSecretKey: /s/secret}"
    assert read(tmp_path, below, "functions_worker.yml")["security"]["token_secret_key"] == "/s/secret"
    with pytest.raises(
        Failure, match="tokenSecretKey is ignored with tokenSettingPrefix: rename it to mytokenSecretKey"
    ):
        read(tmp_path, "tokenSettingPrefix=my\ntokenSecretKey=/s/secret\n", "broker.conf")


def test_records_travel_through_json() -> None:
    for record in (
        ServerSecurity(providers=("token",), proxy_roles=("a", "b"), properties={"a": "b"}),
        ServerTls(ciphers=("x", "y"), refresh_check_s=1),
    ):
        assert type(record).of(json.loads(json.dumps(dataclasses.asdict(record)))) == record


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("authorizationEnabled=true", "requires authenticationEnabled: set both"),
        ("brokerClientKeyFilePath=/k", "brokerClient…: tls_key_file requires tls_certificate_file"),
        ("brokerClientAuthenticationParameters=token:x", "auth_params requires auth_plugin"),
        ("tlsProtocols=TLSv1.1", "'TLSv1.1': expected TLSv1.2 or TLSv1.3"),
        ("tlsCertRefreshCheckDurationSec=-1", "invalid tlsCertRefreshCheckDurationSec -1: expected"),
        ("tlsEnabledWithKeyStore=true", "only PEM files are supported: convert the stores"),
        ("tlsEnabled=true", "'true' requires a port: set brokerServicePortTls or webServicePortTls"),
        ("authenticationRefreshCheckSeconds=0", "expected more than 0"),
        ("tokenAllowedClockSkewSeconds=x", "expected a number"),
        ("brokerServicePortTls=70000", "broker_tls_port=70000 is out of range"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path, line: str, reason: str) -> None:
    assert reason in fault(tmp_path, line)


def test_no_secret_is_in_a_refusal(tmp_path: Path) -> None:
    text = fault(tmp_path, "tokenSecretKey: [hidden]", "functions_worker.yml")
    assert text == "tokenSecretKey: invalid value (not shown): expected a string"
    assert "hidden" not in fault(tmp_path, "properties: {tokenSecretKey: [hidden]}", "functions_worker.yml")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_standalone_speaks_tls_to_official_clients_and_keeps_its_plain_ports(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server, client = authority.issue("server"), authority.issue("ann")
    config = tmp_path / "standalone.conf"
    config.write_text(
        f"brokerServicePortTls=0\nwebServicePortTls=0\ntlsCertificateFilePath={server.file}\n"
        f"tlsKeyFilePath={server.key_file}\ntlsTrustCertsFilePath={authority.file}\n"
    )
    with running("standalone", tmp_path / "data", "--no-functions-worker", "--config", str(config)) as it:
        urls = it.addresses
        assert str(urls["brokerServiceUrlTls"]).startswith("pulsar+ssl://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(client.file, client.key_file)
        with httpx.Client(verify=context, base_url=str(urls["webServiceUrlTls"])) as web:
            cluster = web.get("/admin/v2/clusters/standalone").json()
            found = web.get("/lookup/v2/topic/persistent/public/default/t").json()
        assert cluster["brokerServiceUrlTls"] == found["brokerUrlTls"] == urls["brokerServiceUrlTls"]
        assert cluster["serviceUrlTls"] == found["httpUrlTls"] == urls["webServiceUrlTls"]
        assert cluster["serviceUrl"] == found["httpUrl"] == urls["webServiceUrl"]
        with httpx.Client(base_url=str(urls["webServiceUrl"])) as web:
            assert web.get("/admin/v2/clusters/standalone").json()["serviceUrlTls"] == urls["webServiceUrlTls"]
        for url in (str(urls["brokerServiceUrl"]), str(urls["brokerServiceUrlTls"])):
            official = pulsar.Client(url, tls_trust_certs_file_path=str(authority.file), tls_validate_hostname=True)
            try:
                consumer = official.subscribe("t", "s")
                producer = official.create_producer("t")
                for number in range(200):
                    producer.send_async(b"x" * 20_000 + str(number).encode(), None)
                producer.flush()
                for number in range(200):
                    message = consumer.receive(20_000)
                    assert message.data().endswith(str(number).encode())
                    consumer.acknowledge(message)
            finally:
                official.close()
