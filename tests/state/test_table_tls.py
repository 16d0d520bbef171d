"""TLS of the table service: who is trusted, what is refused and why, certificates that change."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from magnetar.errors import InvalidConfig, StateStoreUnavailable
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.security.server_tls_settings import ServerTls
from magnetar.state.access import TableKey, has_tls, with_token, without_token
from magnetar.state.client import TableClient
from magnetar.state.server import TableServer
from magnetar.state.server_certificates import ServerCertificates
from magnetar.wire.position import Position

from tests.support.certificates import Authority, Certificate

TABLE = "public/default/f@1"
KEY = TableKey(b"k" * 32)
Start = Callable[..., TableServer]
Connect = Callable[..., TableClient]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[TableServer] = []

    def make(certificate: Certificate | None, key: TableKey | None = None, **settings: object) -> TableServer:
        tls = None if certificate is None else tls_of(certificate, **settings)
        directory = tmp_path / f"state{len(started)}"
        directory.mkdir()
        started.append(TableServer.start(directory, key=key, tls=tls))
        return started[-1]

    yield make
    for one in started:
        one.stop()


@pytest.fixture
def connect() -> Iterator[Connect]:
    made = []

    def make(url: str, trusted: Authority | Path | None = None, shown: Certificate | None = None) -> TableClient:
        file = trusted.file if isinstance(trusted, Authority) else trusted
        security = ClientSecurity(
            tls_trust_certs_file=str(file or ""),
            tls_certificate_file="" if shown is None else str(shown.file),
            tls_key_file="" if shown is None else str(shown.key_file),
        )
        made.append(TableClient(url, security))
        return made[-1]

    yield make
    for one in made:
        one.close()


def tls_of(certificate: Certificate, **settings: object) -> ServerTls:
    files = {"certificate_file": str(certificate.file), "key_file": str(certificate.key_file)}
    return ServerTls.of({**files, "refresh_check_s": 0, **settings})


def why_not(client: TableClient) -> str:
    with pytest.raises(StateStoreUnavailable) as caught:
        client.statistics(5.0)
    text = str(caught.value)
    assert "\n" not in text
    return text.partition(" cannot be reached: ")[2]


def test_state_is_kept_and_read_with_tls_and_token(authority: Authority, start: Start, connect: Connect) -> None:
    server = start(authority.issue("store"), KEY)
    assert server.url.startswith("bk+ssl://127.0.0.1:")
    client = connect(with_token(server.url, KEY.table_token(TABLE)), authority)
    client.put(TABLE, b"k", b"v")
    (value,) = client.read(TABLE, [b"k"])
    assert value is not None
    assert value.data == b"v"
    client.commit(TABLE, "uuid", "p", None, Position(1, 1), [], [], None)
    assert client.open(TABLE, "uuid", "p").position == Position(1, 1)
    assert KEY.table_token(TABLE) not in repr(client)


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
def test_certificate_counts_by_name_and_by_address_of_version_6(
    host: str, authority: Authority, tmp_path: Path, connect: Connect
) -> None:
    certificate = authority.issue("store", [host.strip("[]")])
    server = TableServer.start(tmp_path, host, tls=tls_of(certificate))
    try:
        assert connect(f"bk+ssl://{host}:{server.port}", authority).tables() == []
    finally:
        server.stop()


def test_store_of_another_authority_is_refused_with_the_remedy(
    authority: Authority, tmp_path: Path, start: Start, connect: Connect
) -> None:
    server = start(authority.issue("store"))
    other = Authority(tmp_path / "other", "Other CA")
    for trusted in (other, None):
        reason = why_not(connect(server.url, trusted))
        assert f"rejected the certificate of 127.0.0.1:{server.port}: unable to get local issuer" in reason
        assert "brokerClientTrustCertsFilePath" in reason


@pytest.mark.slow
def test_a_refused_certificate_is_told_by_the_error_alone(authority: Authority, start: Start) -> None:
    code = (
        "import sys\nfrom magnetar.state.client import TableClient\n"
        "try:\n    TableClient(sys.argv[1]).tables()\nexcept Exception as error:\n    print(error)\n"
    )
    url = with_token(start(authority.issue("store"), KEY).url, KEY.full_token())
    found = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True, timeout=60)
    assert "the certificate of 127.0.0.1:" in found.stdout
    assert found.stderr == ""
    assert KEY.full_token() not in found.stdout


def test_store_of_another_name_is_refused_with_the_remedy(authority: Authority, start: Start, connect: Connect) -> None:
    reason = why_not(connect(start(authority.issue("store", ["elsewhere.example"])).url, authority))
    assert "certificate is not valid for '127.0.0.1': connect with a host name in the certificate" in reason
    assert "tls_hostname_verification" not in reason


def test_store_with_a_certificate_that_has_ended_is_refused(
    authority: Authority, start: Start, connect: Connect
) -> None:
    assert "certificate has expired" in why_not(connect(start(authority.issue("s", is_expired=True)).url, authority))


def test_store_without_tls_is_told_of(authority: Authority, start: Start, connect: Connect) -> None:
    server = start(None)
    client = connect(with_token(server.url.replace("bk://", "bk+ssl://"), "secret"), authority)
    reason = why_not(client)
    assert reason.startswith(f"127.0.0.1:{server.port} does not speak TLS: set tlsCertificateFilePath")
    assert "secret" not in reason


def test_client_without_tls_is_told_of_it(authority: Authority, start: Start, connect: Connect) -> None:
    server = start(authority.issue("store"))
    reason = why_not(connect(server.url.replace("bk+ssl://", "bk://")))
    assert reason == f"the server requires TLS: use bk+ssl://127.0.0.1:{server.port}"


def test_nobody_listening_is_called_so(authority: Authority, connect: Connect) -> None:
    with pytest.raises(StateStoreUnavailable, match=r"cannot be reached \(.*refused.*that `magnetar state-store`"):
        connect("bk+ssl://127.0.0.1:1", authority).statistics()


def test_client_certificate_is_required_where_the_settings_say(
    authority: Authority, tmp_path: Path, start: Start, connect: Connect
) -> None:
    server = start(authority.issue("store"), trust_certs_file=str(authority.file), requires_client_certificate=True)
    assert connect(server.url, authority, authority.issue("worker", [])).tables() == []
    assert "certificate" in why_not(connect(server.url, authority))
    stranger = Authority(tmp_path / "other", "Other CA").issue("worker", [])
    assert why_not(connect(server.url, authority, stranger))


def test_new_certificate_counts_for_new_connections(
    authority: Authority, tmp_path: Path, start: Start, connect: Connect
) -> None:
    certificate = authority.issue("store")
    server = start(certificate)
    before = connect(server.url, authority)
    assert before.tables() == []
    other = Authority(tmp_path / "other", "Other CA")
    exchange(certificate, other.issue("store"))
    assert connect(server.url, other).tables() == []
    assert "rejected the certificate" in why_not(connect(server.url, authority))
    assert before.tables() == []


def test_client_reads_whom_it_trusts_anew_where_it_is_refused(
    authority: Authority, tmp_path: Path, start: Start, connect: Connect
) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    server = start(other.issue("store"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes())
    client = connect(server.url, trusted)
    assert "rejected the certificate" in why_not(client)
    trusted.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
    assert "rejected the certificate" not in why_not(client)
    assert client.tables() == []


def test_trust_file_that_is_missing_is_named_until_it_is_there(
    authority: Authority, tmp_path: Path, start: Start, connect: Connect
) -> None:
    trusted = tmp_path / "trusted.pem"
    client = connect(start(authority.issue("store")).url, trusted)
    assert f"cannot read trusted certificates {trusted}" in why_not(client)
    trusted.write_bytes(authority.file.read_bytes())
    assert client.tables() == []


def test_broken_files_leave_the_former_certificate_in_force(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = authority.issue("store")
    now_s = 0.0
    read = ServerCertificates(tls_of(certificate, refresh_check_s=10), lambda: now_s)
    with caplog.at_level(logging.INFO):
        exchange(certificate, authority.issue("next"))
        assert read.changed() is None  # not looked at yet
        now_s = 10.0
        assert isinstance(read.changed(), grpc.ServerCertificateConfiguration)
        certificate.key_file.write_text("nonsense")
        now_s = 20.0
        assert read.changed() is None
        certificate.key_file.unlink()
        now_s = 30.0
        assert read.changed() is None
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "reloaded changed TLS files for new connections"
    assert all(
        "continuing with the previous certificate: tlsCertificateFilePath" in one or "tlsKeyFilePath" in one
        for one in said[1:]
    )
    assert len(said) == 3


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"key_file": ""}, "TLS of the state store requires tlsKeyFilePath"),
        ({"certificate_file": ""}, "TLS of the state store requires tlsCertificateFilePath"),
        ({"key_file": "/nowhere"}, "tlsKeyFilePath: cannot read /nowhere"),
        (
            {"protocols": ("TLSv1.3",)},
            "tlsProtocols cannot be changed for the state store: expected TLSv1.2 and TLSv1.3",
        ),
        ({"ciphers": ("X",)}, "tlsCiphers is not supported by the state store"),
        ({"trust_certs_file": "ca"}, "tlsTrustCertsFilePath has no effect on the state store"),
        ({"trust_certs_file": "ca", "crl_file": "crl"}, "tlsCrlFilePath is not supported by the state store"),
        ({"requires_client_certificate": True}, "tlsRequireTrustedClientCertOnConnect requires tlsTrustCertsFilePath"),
    ],
)
def test_what_does_not_work_is_refused_by_name(
    settings: dict[str, object], reason: str, authority: Authority, start: Start
) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        start(authority.issue("store"), **settings)


def test_client_cannot_leave_the_certificate_unchecked() -> None:
    security = ClientSecurity(tls_allow_insecure_connection=True)
    with pytest.raises(InvalidConfig, match=r"bk\+ssl://h:1: tlsAllowInsecureConnection is not supported"):
        TableClient("bk+ssl://secret@h:1", security)
    TableClient("bk://h:1", security).close()


def test_token_in_a_url_with_tls_is_not_shown() -> None:
    url = with_token("bk+ssl://h:1", "secret")
    assert (url, without_token(url), has_tls(url)) == ("bk+ssl://secret@h:1", "bk+ssl://h:1", True)
    with pytest.raises(InvalidConfig, match=r"invalid stateStorageServiceUrl 'bk\+ssl://…@h': expected") as caught:
        TableClient("bk+ssl://secret@h")
    assert "secret" not in str(caught.value)


def exchange(old: Certificate, new: Certificate) -> None:
    """Put a certificate and its key in the place of another."""
    new.key_file.replace(old.key_file)
    new.file.replace(old.file)
