"""The connectors `pulsar` at another cluster that asks who connects, and speaks TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.api.connector import Retry
from magnetar.api.connector_config import HIDDEN, fields_of, read_config
from magnetar.connectors.pulsar_cluster import PulsarClusterConfig, security_of
from magnetar.connectors.pulsar_sink import PulsarSink
from magnetar.connectors.pulsar_source import PulsarSource
from magnetar.errors import InvalidConfig
from magnetar.security.credentials.client_security import ClientSecurity

from tests.connectors.direct import Direct, DirectContext
from tests.connectors.test_pulsar_connectors import exact_context, sequenced
from tests.support.secure_cluster import SecureCluster, running_secure_cluster

URL = {"serviceUrl": "pulsar+ssl://localhost"}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with running_secure_cluster("ours", tmp_path_factory.mktemp("secure")) as cluster:
        assert cluster is not None
        yield cluster


def connectors() -> tuple[Any, ...]:
    """One of each, whose configurations have these fields in common."""
    return PulsarSink(), PulsarSource()


def shown(cluster: SecureCluster, role: str = "superuser") -> dict[str, str]:
    return {"authPlugin": "token", "authParams": f"token:{cluster.token(role)}"}


def ways(cluster: SecureCluster, directory: Path) -> dict[str, dict[str, str]]:
    """Addresses and credentials that lead to the cluster."""
    trusting = {"serviceUrl": cluster.tls_url, "tlsTrustCertsFilePath": cluster.ca}
    mine = cluster.certificate("superuser")
    file = directory / "token"
    file.write_text(cluster.token("superuser"))
    return {
        "token": {"serviceUrl": cluster.service_url, **shown(cluster)},
        "token over TLS": {**trusting, **shown(cluster)},
        "file": {**trusting, "authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
                 "authParams": file.as_uri()},
        "certificate": {**trusting, "authPlugin": "tls",
                        "authParams": f"tlsCertFile:{mine.file},tlsKeyFile:{mine.key_file}"},
    }  # fmt: skip


@pytest.mark.parametrize("way", ["token", "token over TLS", "file", "certificate"])
def test_records_go_there_and_back(secure: SecureCluster, tmp_path: Path, way: str) -> None:
    configs = ways(secure, tmp_path)[way] | {"topic": secure.topic("t")}
    sink = Direct(PulsarSink(), configs)
    sink.write(sequenced(5))
    sink.close()
    source = Direct(PulsarSource(), configs | {"subscriptionName": "s"})
    assert [record.value for record in source.read(5)] == [b"v%d" % number for number in range(5)]
    source.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_deduplication_is_switched_on_by_who_may(secure: SecureCluster, scheme: str) -> None:
    configs = {"serviceUrl": secure.tls_url, "tlsTrustCertsFilePath": secure.ca, "topic": secure.topic("t")}
    configs |= {"adminUrl": secure.web_url if scheme == "http" else secure.web_tls_url, **shown(secure)}
    sink = Direct(PulsarSink(), configs, context := exact_context())
    sink.write(sequenced(20))
    sink.close()
    again = Direct(PulsarSink(), configs, context)
    again.write(sequenced(30))
    again.close()
    source = Direct(PulsarSource(), {key: configs[key] for key in configs if key != "adminUrl"})
    assert [record.value for record in source.read(30)] == [b"v%d" % number for number in range(30)]
    source.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"Authentication.*Failed to authenticate: set authPlugin and authParams$"),
        ({"authPlugin": "token", "authParams": "token:e30.e30.hidden"}, r"\(method token\): the credentials may have"),
        ({"authPlugin": "token", "authParams": "file:///not/there"}, r"cannot read token file /not/there"),
    ],
)
def test_why_it_is_not_let_in_is_said_without_the_secret(
    secure: SecureCluster, given: dict[str, str], said: str
) -> None:
    for connector in connectors():
        configs = {"serviceUrl": secure.service_url, "topic": secure.topic("t"), **given}
        with pytest.raises(Retry, match=said) as failed:
            connector.open(read_config(connector.config, configs), DirectContext())
        assert "hidden" not in str(failed.value)


def test_a_cluster_that_is_not_trusted_is_said_with_the_field(secure: SecureCluster) -> None:
    configs = {"serviceUrl": secure.tls_url, "topic": secure.topic("t"), **shown(secure)}
    config = read_config(PulsarSink.config, configs)
    with pytest.raises(Retry, match=r"rejected the certificate of .*: set tlsTrustCertsFilePath to the CA"):
        PulsarSink().open(config, DirectContext())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"authParams": "token:hidden"}, r"^authParams requires authPlugin"),
        ({"authPlugin": "os:system", "authParams": "x"}, r"^unknown authPlugin 'os:system': expected token, basic"),
        ({"authPlugin": "basic", "authParams": "hidden"}, "."),
        ({"tlsKeyFilePath": "/k"}, r"^tlsKeyFilePath requires tlsCertificateFilePath"),
        ({"serviceUrl": "pulsar://h", "tlsTrustCertsFilePath": "/a"}, r"^tlsTrustCertsFilePath requires TLS"),
        ({"serviceUrl": "pulsar://h", "tlsEnableHostnameVerification": False},
         r"^tlsEnableHostnameVerification requires TLS"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_the_names_of_fields(given: dict[str, Any], said: str) -> None:
    for connector in connectors():
        config = read_config(connector.config, URL | {"topic": "t"} | given)
        with pytest.raises(InvalidConfig, match=said) as failed:
            connector.check(config)
        assert "hidden" not in str(failed.value)


def test_what_is_shown_is_a_secret() -> None:
    [field] = [field for field in fields_of(PulsarClusterConfig) if field.secret]
    assert field.key == "authParams"
    for connector in connectors():
        given = URL | {"topic": "t", "authPlugin": "token"}
        config = read_config(connector.config, given, {"authParams": "token:hidden"})
        assert security_of(config).auth_params == "token:hidden"
        with pytest.raises(InvalidConfig) as failed:
            read_config(connector.config, given | {"authParams": {"a": "hidden"}})
        assert HIDDEN in str(failed.value)
        assert "hidden" not in str(failed.value)


def test_all_settings_of_clients_have_their_fields() -> None:
    given = {
        "authPlugin": "token", "authParams": "x", "tlsTrustCertsFilePath": "/a", "tlsCertificateFilePath": "/c",
        "tlsKeyFilePath": "/k", "tlsAllowInsecureConnection": True, "tlsHostnameVerificationEnable": False,
    }  # fmt: skip
    security = security_of(read_config(PulsarClusterConfig, URL | given))
    assert set(security.to_dict()) == set(vars(ClientSecurity()))
    assert len(json.dumps(security.to_dict())) > 0
