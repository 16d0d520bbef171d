"""Basic authentication and certificates: hashes as htpasswd writes them, and the name in a subject."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import AuthenticationError, InvalidConfig
from magnetar.security.authentication.basic import BasicProvider, is_password, read_users
from magnetar.security.authentication.certificates import TlsProvider
from magnetar.security.authentication.provider import Peer
from magnetar.security.authentication.settings import ServerSecurity

from ..support.tokens import data_url

PEER = Peer("/127.0.0.1:1")
# Written by `htpasswd -nbm`, `-nbd` and `-nbs`, and by `openssl passwd`.
APR1 = "ann:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/"
CRYPT = "bob:rqXexS6ZhobKA"
SHA = "eve:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="


def provider(*lines: str) -> BasicProvider:
    return BasicProvider(ServerSecurity(basic_auth_conf=data_url("\n".join(lines).encode())))


USERS = provider(APR1, "# a comment", "", CRYPT, SHA)


def role(shown: bytes) -> str | None:
    return USERS.authenticate(shown, PEER, 0).role


def test_both_formats_of_htpasswd_are_read() -> None:
    assert role(b"ann:myPassword") == "ann"
    assert role(b"bob:myPassword") == "bob"
    assert role(b"bob:myPasswoZZZ") == "bob", "of the traditional format eight characters count"


@pytest.mark.parametrize(
    "shown",
    [b"ann:mypassword", b"ann:", b"bob:wrong", b"nobody:myPassword", b"ann", b"", b":", b"ann:my:Password",
     b"eve:secret", b"ann:my\x00Password", b"\xff\xfe:x", b"ann:" + b"x" * 2000],
)  # fmt: skip
def test_everything_else_is_refused(shown: bytes) -> None:
    with pytest.raises(AuthenticationError):
        role(shown)


def test_the_reason_does_not_tell_whether_a_name_is_known() -> None:
    reasons = []
    for shown in (b"ann:wrong", b"nobody:wrong"):
        with pytest.raises(AuthenticationError) as caught:
            role(shown)
        reasons.append(str(caught.value))
    assert reasons == ["unknown name or wrong password"] * 2


def test_a_request_shows_name_and_password_in_base64() -> None:
    for scheme in ("Basic", "basic", "BASIC"):
        assert USERS.http_data({"authorization": f"{scheme} YW5uOm15UGFzc3dvcmQ="}, PEER) == b"ann:myPassword"
    assert USERS.http_data({"authorization": "Bearer abc"}, PEER) is None
    assert USERS.http_data({}, PEER) is None
    with pytest.raises(AuthenticationError, match="not valid base64"):
        USERS.http_data({"authorization": "Basic ***"}, PEER)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "has no users"), ("ann", "invalid line 1"), (f"{APR1}\n:x", "invalid line 2")],
)
def test_a_file_that_is_none_is_refused(content: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_users(content.encode())
    assert reason in str(caught.value)
    assert "apr1" not in str(caught.value)


def test_passwords_without_a_file_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="basicAuthConf is not set"):
        BasicProvider(ServerSecurity())


@given(st.text(max_size=50), st.sampled_from([APR1, CRYPT, SHA]) | st.text(max_size=40))
def test_no_password_and_no_hash_make_it_raise(password: str, line: str) -> None:
    assert is_password(password, line.partition(":")[2]) in (True, False)


@given(st.binary(max_size=64))
def test_no_bytes_make_it_raise_anything_but_its_refusal(data: bytes) -> None:
    with pytest.raises(AuthenticationError):
        role(data)


def subject(*names: tuple[str, str]) -> dict[str, Any]:
    return {"subject": tuple((pair,) for pair in names)}


def test_the_role_of_a_certificate_is_its_common_name() -> None:
    certificate = subject(("organizationName", "A, CN=root"), ("commonName", "ann"))
    assert TlsProvider(ServerSecurity()).authenticate(b"", Peer("", certificate), 0).role == "ann"
    two = subject(("commonName", "outer"), ("commonName", "inner"))
    assert TlsProvider(ServerSecurity()).authenticate(b"", Peer("", two), 0).role == "inner"


@pytest.mark.parametrize(
    "certificate", [None, {}, subject(), subject(("organizationName", "ann")), subject(("commonName", ""))]
)
def test_no_certificate_or_one_without_a_name_is_refused(certificate: dict[str, Any] | None) -> None:
    with pytest.raises(AuthenticationError):
        TlsProvider(ServerSecurity()).authenticate(b"", Peer("", certificate), 0)


FIRST_AT_ONCE = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from magnetar.security.authentication.basic import is_password
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)
def judge(_):
    barrier.wait()
    return is_password("myPassword", "$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/")
with ThreadPoolExecutor(8) as pool:
    assert all(pool.map(judge, range(8)))
"""


@pytest.mark.slow
def test_the_first_passwords_may_come_at_the_same_moment() -> None:
    """In processes of their own, as the library is loaded once in each."""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", FIRST_AT_ONCE], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
