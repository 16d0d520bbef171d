"""How a functions worker learns who asks: headers that the broker passes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.admin.forwarded_identity import with_identity
from magnetar.security.roles import Roles
from magnetar.web.answers import Refused

OWN = {"Authorization": "Bearer own"}
SENT = [
    (b"authorization", b"Bearer theirs"), (b"accept", b"*/*"), (b"x-original-principal", b"forged"),
    (b"x-pulsar-auth-method-name", b"token"),
]  # fmt: skip


@pytest.mark.parametrize("method", ["token", "basic", ""])
@pytest.mark.parametrize("own", [None, OWN])
def test_who_is_known_by_headers_goes_on_as_it_came(method: str, own: dict[str, str] | None) -> None:
    assert with_identity(SENT, Roles("proxy", "ann"), method, own) == SENT
    assert with_identity(SENT, None, method, own) == SENT


def test_who_is_known_by_a_certificate_becomes_the_original_of_the_broker() -> None:
    found = with_identity(SENT, Roles("ann"), "tls", OWN)
    assert found == [(b"accept", b"*/*"), (b"authorization", b"Bearer own"), (b"x-original-principal", b"ann")]


@pytest.mark.parametrize(
    ("roles", "own", "reason"),
    [
        (Roles("ann"), None, "known by its client certificate only"),
        (Roles("proxy", "ann"), OWN, "a proxy that is known by its client certificate"),
        (Roles("ann\r\nx-evil: 1"), OWN, "cannot stand in a header"),
        (Roles("日本"), OWN, "cannot stand in a header"),
        (Roles(None), OWN, "cannot stand in a header"),
    ],
)
def test_a_caller_that_a_worker_cannot_be_told_is_refused(
    roles: Roles, own: dict[str, str] | None, reason: str
) -> None:
    with pytest.raises(Refused) as caught:
        with_identity(SENT, roles, "tls", own)
    assert caught.value.status == 401
    assert reason in str(caught.value.reason)


@given(st.text(), st.lists(st.tuples(st.sampled_from([name for name, _ in SENT]), st.binary()), max_size=6))
def test_no_certificate_and_no_header_puts_another_original_in(role: str, sent: list[tuple[bytes, bytes]]) -> None:
    try:
        found = with_identity(sent, Roles(role), "tls", OWN)
    except Refused:
        return
    assert [value for name, value in found if name == b"x-original-principal"] == [role.encode("latin-1")]
    assert [value for name, value in found if name == b"authorization"] == [b"Bearer own"]
    assert not any(b"\r" in value or b"\n" in value for name, value in found if name == b"x-original-principal")
