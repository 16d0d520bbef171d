"""The files of examples/deployment: the settings start a closed server, the others say what they should."""

from __future__ import annotations

import configparser
import ssl
from pathlib import Path

import httpx
import pulsar
import pytest
import yaml

from tests.support.command import call
from tests.support.servers import running

FILES = Path(__file__).parents[1] / "examples" / "deployment"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_settings_start_a_server_that_takes_tokens_over_tls(tmp_path: Path) -> None:
    keys, certificates = tmp_path / "keys", tmp_path / "keys" / "certificates"
    keys.mkdir()
    made = call("tokens", "create-secret-key", "--output", str(keys / "secret.key"))
    assert made.code == 0, made.err
    assert call("certificates", "create", "--directory", str(certificates)).code == 0
    created = call("tokens", "create", "--secret-key", str(keys / "secret.key"), "--subject", "admin", "-e", "1h")
    token = created.out.strip().splitlines()[-1]
    text = (FILES / "standalone.yml").read_text().replace("/etc/magnetar", str(keys))
    config = tmp_path / "standalone.yml"
    config.write_text(text.replace("6651", "0").replace("8443", "0").replace("0.0.0.0", "127.0.0.1"))
    with running("standalone", tmp_path / "server", "--config", str(config)) as it:
        authority = certificates / "ca.pem"
        context = ssl.create_default_context(cafile=str(authority))
        with httpx.Client(verify=context, base_url=str(it.addresses["webServiceUrlTls"])) as web:
            assert web.get("/admin/v2/tenants").status_code == 401
            answer = web.get("/admin/v2/tenants", headers={"Authorization": f"Bearer {token}"})
            assert (answer.status_code, "public" in answer.json()) == (200, True)
        client = pulsar.Client(
            str(it.addresses["brokerServiceUrlTls"]),
            authentication=pulsar.AuthenticationToken(token),
            tls_trust_certs_file_path=str(authority),
            tls_validate_hostname=True,
        )
        client.create_producer("t").send(b"x")
        client.close()


def test_unit_starts_what_its_comments_prepare() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FILES / "magnetar.service")
    command = unit["Service"]["ExecStart"].split()
    assert command[1:4] == ["standalone", "--config", "/etc/magnetar/standalone.yml"]
    assert unit["Service"]["User"] == "magnetar"
    assert unit["Service"]["NoNewPrivileges"] == "yes"


def test_container_publishes_the_ports_with_tls_only() -> None:
    service = yaml.safe_load((FILES / "compose.yml").read_text())["services"]["magnetar"]
    settings = yaml.safe_load((FILES / "standalone.yml").read_text())
    ports = {settings["brokerServicePortTls"], settings["webServicePortTls"]}
    assert service["ports"] == [f"{port}:{port}" for port in sorted(ports)]
    lines = (FILES / "Dockerfile").read_text().splitlines()
    assert f"EXPOSE {' '.join(str(port) for port in sorted(ports))}" in lines
    assert "USER magnetar" in lines
    assert settings["authenticationEnabled"] is settings["authorizationEnabled"] is True
