"""How a functions worker learns who asks: headers that the broker passes on, and its word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.admin.forwarded_identity import HEADER, with_identity
from magnetar.errors import AuthenticationError
from magnetar.security.authentication import forwarded
from magnetar.security.authentication.forwarded import LIFE_S, ForwardedProvider, forwarded_token
from magnetar.security.authentication.opening import open_authenticator
from magnetar.security.authentication.provider import Peer
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.roles import Roles
from magnetar.web.answers import Refused

from ...support.tokens import SECRET, data_url, token

NOW = 1_800_000_000.0
KEY = b"f" * 32
SETTINGS = ServerSecurity(
    enabled=True, providers=("token",), token_secret_key=data_url(SECRET), proxy_roles=("proxy",), forward_key=KEY.hex()
)
SENT = [
    (b"authorization", b"Bearer theirs"), (b"accept", b"*/*"), (b"x-original-principal", b"ann"),
    (b"x-pulsar-auth-method-name", b"token"), (HEADER, b"forged"),
]  # fmt: skip


def vouch(role: str) -> str:
    return forwarded_token(role, KEY, NOW)


def test_both_sides_mean_the_same_header() -> None:
    assert HEADER.decode() == forwarded.HEADER


@pytest.mark.parametrize("method", ["token", "basic", ""])
def test_who_is_known_by_headers_goes_on_as_it_came_without_a_word_of_its_own(method: str) -> None:
    assert with_identity(SENT, Roles("proxy", "ann"), method, vouch) == SENT[:-1]
    assert with_identity(SENT, None, method, None) == SENT[:-1]


async def test_a_worker_believes_the_word_for_who_is_known_by_a_certificate() -> None:
    worker = open_authenticator(SETTINGS, lambda: NOW)
    assert worker is not None
    for role in ("bob", "日本\r\nx-evil: 1"):
        answer = await worker.request(with_identity(SENT[:2], Roles(role), "tls", vouch), Peer())
        assert (answer.roles, answer.method) == (Roles(role), "forwarded")
    proxied = await worker.request(with_identity(SENT, Roles("proxy", "ann"), "tls", vouch), Peer())
    assert (proxied.roles.role, proxied.roles.original) == ("proxy", "ann")


async def test_a_worker_believes_no_other_word() -> None:
    worker = open_authenticator(SETTINGS, lambda: NOW)
    assert worker is not None
    late = forwarded_token("admin", KEY, NOW - LIFE_S - 1)
    for word in (late, forwarded_token("admin", SECRET, NOW), token("admin"), token("admin", key=KEY), "", "x"):
        with pytest.raises(AuthenticationError):
            await worker.request([(HEADER, word.encode())], Peer())
    with pytest.raises(AuthenticationError):  # it is no token of a user
        await worker.request([(b"authorization", f"Bearer {vouch('admin')}".encode())], Peer())


def test_a_caller_that_a_worker_cannot_be_told_is_refused() -> None:
    for roles, word in ((Roles("ann"), None), (Roles(None), vouch)):
        with pytest.raises(Refused) as caught:
            with_identity(SENT, roles, "tls", word)
        assert caught.value.status == 401
        assert "authenticated only by its client certificate" in str(caught.value.reason)


@given(st.text(min_size=1), st.lists(st.tuples(st.sampled_from([name for name, _ in SENT]), st.binary()), max_size=6))
def test_no_certificate_and_no_header_makes_it_another_role(role: str, sent: list[tuple[bytes, bytes]]) -> None:
    found = with_identity(sent, Roles(role), "tls", vouch)
    assert [name for name, _ in found if name in (b"authorization", b"x-pulsar-auth-method-name")] == []
    (word,) = [value for name, value in found if name == HEADER]
    if role.strip():
        assert ForwardedProvider(SETTINGS).authenticate(word, Peer(), NOW).role == role
