"""`magnetar tokens` and `magnetar certificates`: what they write, and that servers and Pulsar's tools can use it."""

from __future__ import annotations

import json
import ssl
import stat
import subprocess
import time
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import root
from magnetar.cli.security.tokens import seconds
from magnetar.errors import MagnetarError
from magnetar.security.authentication.provider import Peer
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.authentication.tokens import TokenProvider
from magnetar.security.server_tls import make_context
from magnetar.security.server_tls_settings import ServerTls


def call(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(root, list(arguments), input=given)


def ok(*arguments: str, given: str | None = None) -> str:
    result = call(*arguments, given=given)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def fails(*arguments: str, given: str | None = None) -> str:
    result = call(*arguments, given=given)
    assert result.exit_code != 0
    if isinstance(result.exception, MagnetarError):
        return str(result.exception)
    return result.output


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def role(token: str, **settings: str) -> str | None:
    provider = TokenProvider(ServerSecurity(**settings))  # type: ignore[arg-type]
    return provider.authenticate(token.encode(), Peer(), time.time()).role


@pytest.mark.parametrize(("algorithm", "length"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_a_secret_has_the_length_of_its_algorithm_and_is_for_its_owner(
    tmp_path: Path, algorithm: str, length: int
) -> None:
    file = tmp_path / "secret"
    ok("tokens", "create-secret-key", "-a", algorithm, "-o", str(file))
    assert (len(file.read_bytes()), mode(file)) == (length, 0o600)
    token = ok("tokens", "create", "-s", "ann", "-sk", file.as_uri(), "-a", algorithm)
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "JWT"}
    assert role(token, token_secret_key=str(file)) == "ann"
    assert f"{file} already exists" in fails("tokens", "create-secret-key", "-o", str(file))
    assert len(file.read_bytes()) == length


def test_a_secret_in_base64_is_printed_and_can_be_given_as_it_is() -> None:
    secret = ok("tokens", "create-secret-key", "--base64")
    assert role(ok("tokens", "create", "-s", "ann", "-sk", secret), token_secret_key=secret) == "ann"


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256", "ES384", "ES512"])
def test_a_key_pair_signs_and_verifies(tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    files = "--output-private-key", str(private), "--output-public-key", str(public)
    ok("tokens", "create-key-pair", "-a", algorithm, *files)
    assert mode(private) == 0o600
    token = ok("tokens", "create", "-s", "ann", "-pk", str(private), "-a", algorithm, "-hs", "kid=7")
    assert jwt.get_unverified_header(token)["kid"] == "7"
    assert role(token, token_public_key=str(public), token_public_alg=algorithm) == "ann"
    claims = ok("tokens", "validate", "-a", algorithm, "-pk", str(public), token)
    assert json.loads(claims) == {"sub": "ann"}


def test_a_token_may_end_and_be_for_an_audience() -> None:
    secret = ok("tokens", "create-secret-key", "-b")
    token = ok("tokens", "create", "-s", "ann", "-sk", secret, "-e", "1h", "--audience", "here")
    head, line, claims = ok("tokens", "show", "-i", given=f"token:{token}\n").splitlines()
    assert (json.loads(head)["alg"], line) == ("HS256", "---")
    assert json.loads(claims)["aud"] == "here"
    assert abs(json.loads(claims)["exp"] - time.time() - 3600) < 60
    assert [seconds(text) for text in ("30s", "5m", "1h", "3d", "2w", "10y")] == [
        30, 300, 3600, 259_200, 1_209_600, 315_360_000
    ]  # fmt: skip


def test_programs_get_json(tmp_path: Path) -> None:
    secret = json.loads(ok("-o", "json", "tokens", "create-secret-key"))["secretKey"]
    token = json.loads(ok("-o", "json", "tokens", "create", "-s", "ann", "-sk", secret))["token"]
    shown = json.loads(ok("-o", "json", "tokens", "show", token))
    assert shown == {"header": {"alg": "HS256", "typ": "JWT"}, "payload": {"sub": "ann"}}
    settings = json.loads(ok("-o", "json", "certificates", "create", "--directory", str(tmp_path)))
    assert settings["tlsTrustCertsFilePath"] == f"{tmp_path}/ca.pem"


def test_a_token_that_is_not_good_is_not_validated(tmp_path: Path) -> None:
    secret, other = ok("tokens", "create-secret-key", "-b"), ok("tokens", "create-secret-key", "-b")
    ended = ok("tokens", "create", "-s", "ann", "-sk", secret, "-e", "0s")
    file = tmp_path / "token"
    file.write_text(ok("tokens", "create", "-s", "ann", "-sk", secret) + "\n")
    assert json.loads(ok("tokens", "validate", "-sk", secret, "-f", str(file))) == {"sub": "ann"}
    assert "InvalidSignatureError" in fails("tokens", "validate", "-sk", other, "-f", str(file))
    time_over = jwt.encode({"sub": "ann", "exp": 1}, other, "HS256")
    assert "invalid token" in fails("tokens", "validate", "-sk", secret, time_over)
    assert json.loads(ok("tokens", "show", ended).splitlines()[2])["sub"] == "ann"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("create", "-s", "ann"), "add --secret-key or --private-key"),
        (("create", "-s", "ann", "-sk", "AAAA"), "--secret-key has 3 bytes, but HS256 requires 32"),
        (("create", "-s", "ann", "-sk", "no such file"), "invalid --secret-key: expected data:;base64"),
        (("create", "-s", "ann", "-pk", "AAAA"), "--private-key is not a private key in DER or PEM"),
        (("create", "-s", "ann", "-sk", "A" * 44, "-a", "HS512"), "--signature-algorithm HS512 does not match the key"),
        (
            ("create", "-s", "ann", "-sk", "A" * 44, "-e", "soon"),
            "invalid --expiry-time 'soon': expected, for example, 30s",
        ),
        (("create", "-s", "ann", "-sk", "A" * 44, "-hs", "alg=none"), "expected name=value of a header"),
        (("show",), "specify exactly one token"),
        (("show", "garbage"), "invalid token"),
        (("show", "-f", "/no/such/file"), "--token-file /no/such/file cannot be read: No such file"),
        (("validate", "x"), "add --secret-key or --public-key"),
        (("validate", "-pk", "AAAA", "x"), "--public-key is not a public key in DER"),
        (("create-secret-key", "-o", "/no/such/directory/key"), "cannot be written: No such file or directory"),
    ],
)
def test_wrong_calls_are_refused_on_one_line(arguments: tuple[str, ...], reason: str) -> None:
    text = fails("tokens", *arguments)
    assert reason in text
    assert "AAAA" not in text


def test_certificates_serve_and_show_who_asks(tmp_path: Path) -> None:
    place = tmp_path / "c"
    out = ok(
        "certificates",
        "create",
        "--directory",
        str(place),
        "--client",
        "ann",
        "--host",
        "broker.example",
        "--host",
        "127.0.0.1",
    )
    assert out.splitlines()[0] == f"tlsCertificateFilePath={place}/server.pem"
    assert {path.name: mode(path) for path in place.iterdir()} == {
        "ca.pem": 0o644, "ca.key.pem": 0o600, "server.pem": 0o644, "server.key.pem": 0o600, "ann.pem": 0o644,
        "ann.key.pem": 0o600,
    }  # fmt: skip
    tls = ServerTls(
        certificate_file=f"{place}/server.pem", key_file=f"{place}/server.key.pem", trust_certs_file=f"{place}/ca.pem"
    )
    client = ssl.create_default_context(cafile=f"{place}/ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_cert_chain(f"{place}/ann.pem", f"{place}/ann.key.pem")
    shown = shake_hands(make_context(tls), client, "broker.example")
    assert shown["subject"] == ((("commonName", "ann"),),)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(make_context(tls), client, "elsewhere.example")
    client.load_cert_chain(f"{place}/server.pem", f"{place}/server.key.pem")
    with pytest.raises(ssl.SSLError):  # a server's certificate is none of a client's
        shake_hands(make_context(tls), client, "broker.example")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> dict[str, object]:
    """What the server sees of the client's certificate after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(6):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return dict(ours.getpeercert() or {})


def test_further_certificates_are_of_the_same_authority_and_none_is_written_over(tmp_path: Path) -> None:
    ok("certificates", "create", "--directory", str(tmp_path))
    before = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    ok("certificates", "create", "--directory", str(tmp_path), "--client", "bob")
    assert ((tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()) == before
    verified = subprocess.run(
        ["openssl", "verify", "-CAfile", tmp_path / "ca.pem", tmp_path / "bob.pem", tmp_path / "server.pem"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "already exists" in fails("certificates", "create", "--directory", str(tmp_path), "--client", "bob")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--client", "../ann"), "cannot be used as a file name"),
        (("--client", "ca"), "cannot be used as a file name"),
        (("--host", "a b"), "is not a valid host name"),
        (("--days", "0"), "days"),
    ],
)
def test_wrong_certificates_are_refused(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fails("certificates", "create", "--directory", str(tmp_path / "c"), *arguments)
    assert not (tmp_path / "c" / "server.pem").exists()


def test_a_directory_with_half_an_authority_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    assert "were not created by this command" in fails("certificates", "create", "--directory", str(tmp_path))
    (tmp_path / "ca.key.pem").write_text("nothing")
    assert "were not created by this command" in fails("certificates", "create", "--directory", str(tmp_path))
