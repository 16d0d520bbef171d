"""TLS of the binary port: certificates, their exchange, and peers that never finish."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.errors import InvalidConfig
from magnetar.security.roles import Roles

from ..support.certificates import Authority
from ..support.eventually import until
from ..support.tokens import PROVIDER_BASIC, PROVIDER_TLS, PROVIDER_TOKEN
from .raw import Raw
from .secured import GOOD, HTPASSWD, Site, answers_of, closing_all, connect, recorded, settings


@pytest.fixture(autouse=True)
async def closed_at_the_end() -> AsyncIterator[None]:
    with closing_all():
        yield


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def is_refused(site: Site, broker: BrokerService, context: ssl.SSLContext) -> bool:
    """Whether no command is taken; with TLS 1.3, the client hears so only after its handshake."""
    try:
        raw = await site.open(broker, context)
        raw.send("CONNECT", client_version="raw", protocol_version=21, auth_method_name="tls")
        return await raw.is_closed()
    except (ssl.SSLError, ConnectionError):
        return True


async def test_certificates_are_judged_as_in_pulsar(site: Site, tmp_path: Path) -> None:
    consumer = site.authority.issue("consumer")
    plain, bare, shown = "plain", site.client(), site.client(consumer)
    password = {"auth_method_name": "basic", "auth_data": b"producer:myPassword"}
    cases: dict[str, tuple[Any, dict[str, Any], str]] = {
        "method tls, client certificate CN=consumer": (shown, {"auth_method_name": "tls"}, "consumer"),
        "method tls, no client certificate": (bare, {"auth_method_name": "tls"}, ""),
        "method tls on the plain port": (plain, {"auth_method_name": "tls"}, ""),
        "method token over TLS, no certificate": (bare, GOOD, "superuser"),
        "method token of superuser with the certificate": (shown, GOOD, "superuser"),
        "no method, with the certificate": (shown, {}, ""),
        "basic over TLS": (bare, password, "producer"),
    }
    rows = answers_of("tls")
    assert rows.keys() == cases.keys()
    providers = (PROVIDER_TOKEN, PROVIDER_BASIC, PROVIDER_TLS)
    async with site.broker(tmp_path, settings(providers=providers, basic_auth_conf=HTPASSWD)) as broker:
        for case, row in rows.items():
            context, fields, role = cases[case]
            raw = await (Raw.open(broker.port) if context == plain else site.open(broker, context))
            assert (await connect(raw, **fields))[:1] == recorded(row)[:1], case
            if role:
                assert [one.roles for one in broker.connections][-1] == Roles(role), case
            await raw.close()


async def test_a_server_that_requires_a_certificate_takes_none_of_another_authority(site: Site, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign").issue("superuser")
    async with site.broker(tmp_path, requires_client_certificate=True) as broker:
        for context in (site.client(), site.client(foreign)):
            assert await is_refused(site, broker, context)
        raw = await site.open(broker, site.client(site.authority.issue("ann")))
        assert await connect(raw) == ("CONNECTED",)


async def test_a_revoked_certificate_and_an_expired_one_are_refused(site: Site, tmp_path: Path) -> None:
    good, revoked = site.authority.issue("good"), site.authority.issue("revoked")
    expired = site.authority.issue("expired", is_expired=True)
    crl = site.authority.revoke(revoked.serial_number)
    async with site.broker(tmp_path, settings(providers=(PROVIDER_TLS,)), crl_file=str(crl)) as broker:
        for certificate in (revoked, expired):
            assert await is_refused(site, broker, site.client(certificate))
        assert await connect(await site.open(broker, site.client(good)), auth_method_name="tls") == ("CONNECTED",)


async def test_a_client_that_meant_another_host_does_not_connect(site: Site, tmp_path: Path) -> None:
    async with site.broker(tmp_path) as broker:
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await site.open(broker, site.client(), "elsewhere.example")


async def test_versions_before_1_2_are_not_spoken(site: Site, tmp_path: Path) -> None:
    context = site.client()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    async with site.broker(tmp_path) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.open(broker, context)


async def test_a_changed_certificate_is_used_by_new_connections_and_a_broken_one_is_not(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serial_number(broker: BrokerService) -> str:
        raw = await site.open(broker, site.client())
        shown = raw.writer.get_extra_info("peercert")["serialNumber"]
        await raw.close()
        return str(shown)

    async with site.broker(tmp_path) as broker:
        first = await site.open(broker, site.client())
        before = await serial_number(broker)
        site.authority.issue("server")

        async def has_changed() -> bool:
            return await serial_number(broker) != before

        await until(has_changed)
        site.certificate.file.write_text("no certificate")

        async def is_told() -> bool:
            return "cannot use changed TLS files, keeping the previous ones" in caplog.text

        await until(is_told)
        assert await serial_number(broker) != before
        assert await connect(first) == ("CONNECTED",)


async def test_lookups_name_the_address_for_tls(site: Site, tmp_path: Path) -> None:
    async with site.broker(tmp_path) as broker:
        raw = await site.open(broker, site.client())
        await connect(raw)
        answer = await raw.request("LOOKUP", topic="persistent://public/wire/t", request_id=1, authoritative=False)
        assert answer.lookupTopicResponse.brokerServiceUrlTls == f"pulsar+ssl://127.0.0.1:{broker.tls_port}"
        assert answer.lookupTopicResponse.brokerServiceUrl == f"pulsar://127.0.0.1:{broker.port}"


async def test_a_peer_that_does_not_finish_its_handshake_is_dropped(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.broker.service.HANDSHAKE_TIMEOUT_S", 0.2)
    async with site.broker(tmp_path) as broker:
        assert broker.tls_port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.tls_port)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        assert not broker.connections


async def test_the_oldest_unfinished_handshake_gives_way_to_a_newcomer(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.security.tls_listener.MAX_HANDSHAKES", 2)
    async with site.broker(tmp_path) as broker:
        assert broker.tls_port is not None
        finished = [await site.open(broker, site.client()) for _ in range(4)]
        slow = [await asyncio.open_connection("127.0.0.1", broker.tls_port) for _ in range(2)]
        finished.append(await site.open(broker, site.client()))
        async with asyncio.timeout(5):  # the time-out of handshakes is longer
            assert await slow[0][0].read() == b""
        for raw in finished:
            assert await connect(raw) == ("CONNECTED",)
        for _, writer in slow:
            writer.close()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"certificate_file": ""}, "requires tlsCertificateFilePath"),
        ({"key_file": "/no/such.pem"}, "tlsKeyFilePath: cannot read /no/such.pem: No such file or directory"),
        ({"trust_certs_file": "", "requires_client_certificate": True}, "requires tlsTrustCertsFilePath"),
        ({"ciphers": ("NONSENSE",)}, "tlsCiphers contains no known cipher"),
    ],
)
async def test_settings_of_tls_that_cannot_work_are_refused(
    site: Site, tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        async with site.broker(tmp_path, **given):
            pass
    assert reason in str(caught.value)
