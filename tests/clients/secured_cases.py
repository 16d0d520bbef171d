"""The cases of official clients at a secured broker: each kind of credentials, by its defect.

A case says what is shown (a name of `secured_site.Site.credentials`), how the broker is reached, and what comes of it:

- ok: a message was sent and came.
- authentication, authorization, tls: the client says which of these refused it.
- timeout: the client tries again until its own limit (`LIMIT_S`), and says no more than that.
- connection: the client says that it has no connection, and not why.
- missing: the client says that the topic does not exist.
- ended: messages were sent until the credentials ended, and then one was not.

Each is the same on our broker and on an Apache Pulsar but for what `on_pulsar` says. Nothing here may take longer than
`PATIENCE_S`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LIMIT_S = 4
"""Time that a client has for one operation."""
PATIENCE_S = LIMIT_S + 11
"""No case takes longer, beyond the time for which it sends: a client meets its limit once, or is told before.

Java's takes two seconds to close, and the first ones load its classes.
"""
ENDING_S = 4
"""How long a token is good that ends while a client uses it."""
RENEWED_S = 8
"""How long messages are sent with tokens that are good for three seconds each."""

OR = " or "
"""Between outcomes of which either may come."""
PLAIN, TLS, TLS_AT_PLAIN, PLAIN_AT_TLS = "plain", "tls", "tls at plain", "plain at tls"


@dataclass(frozen=True)
class Case:
    """One kind of access to the broker, and its outcome.

    Attributes:
        shows: credentials, by their name at the site.
        expected: what comes of it, for each client that is not named in `differs`.
        reach: of the ports, which one and how.
        differs: what single clients say instead.
        trusts_others: the client trusts another authority than the broker's.
        verifies: the client looks whether the certificate is for the name that it asked for.
        is_closed: the topic is one that the role may not use.
        is_absent: the tenant of the topic does not exist.
        seconds: for how long messages are sent; 0 is one message.
        on_pulsar: what single clients say on an Apache Pulsar instead.
    """

    shows: str
    expected: str
    reach: str = PLAIN
    differs: Mapping[str, str] = field(default_factory=dict)
    trusts_others: bool = False
    verifies: bool = True
    is_closed: bool = False
    is_absent: bool = False
    seconds: int = 0
    on_pulsar: Mapping[str, str] = field(default_factory=dict)

    def outcomes(self, client: str, *, is_pulsar: bool) -> list[str]:
        """Return the possible outcomes, usually one."""
        usual = self.differs.get(client, self.expected)
        return (self.on_pulsar.get(client, usual) if is_pulsar else usual).split(OR)


def _refused(shows: str, reach: str = PLAIN) -> Case:
    """A case of credentials that the broker rejects on connecting; the Python client retries until its limit."""
    return Case(shows, "authentication", reach, {"python": "timeout"})


def _unknown_client(shows: str, **on_pulsar: str) -> Case:
    """A case of a certificate that ends the handshake; no client reports the reason."""
    return Case(shows, "connection", TLS, {"python": "timeout"}, on_pulsar=on_pulsar)


def _unknown_server(shows: str, *, trusts_others: bool = False, verifies: bool = True) -> Case:
    """A case of a server that a client does not trust; only the Go client reports it."""
    return Case(shows, "connection", TLS, {"go": "tls"}, trusts_others=trusts_others, verifies=verifies)


CASES: Mapping[str, Case] = {
    "token": Case("token", "ok"),
    "token_over_tls": Case("token", "ok", TLS),
    "token_closed_topic": Case("token", "authorization", is_closed=True),
    "token_absent_tenant": Case("token", "missing", is_absent=True),
    "token_of_another_key": _refused("token of another key"),
    "token_expired": _refused("token expired"),
    "token_too_early": _refused("token too early"),
    "token_other_audience": _refused("token other audience"),
    "token_no_audience": _refused("token no audience"),
    "token_unsigned": _refused("token unsigned"),
    "token_renewed": Case("token renewed", "ok", seconds=RENEWED_S),
    "token_not_renewed": Case("oauth2 ending", "ended", seconds=ENDING_S + 5),
    "nothing": _refused("nothing"),
    "nothing_over_tls": _refused("nothing", TLS),
    "password": Case("password", "ok"),
    "password_over_tls": Case("password", "ok", TLS),
    "password_closed_topic": Case("password", "authorization", is_closed=True),
    "password_wrong": _refused("password wrong"),
    "password_unknown": _refused("password unknown"),
    "certificate": Case("certificate", "ok", TLS),
    "certificate_closed_topic": Case("certificate", "authorization", TLS, is_closed=True),
    # Pulsar tells a client by an alert of TLS that its certificate has ended; Go's says so.
    "certificate_expired": _unknown_client("certificate expired", go="tls"),
    # Pulsar says whose certificates it takes, and Go's and Java's clients then show none of others.
    "certificate_of_others": _unknown_client("certificate of others", go="authentication", java="authentication"),
    # Pulsar reads no lists of revoked certificates.
    "certificate_revoked": _unknown_client("certificate revoked", java="ok", go="ok", python="ok"),
    "untrusted": _unknown_server("token", trusts_others=True),
    "untrusted_unverified": _unknown_server("token", trusts_others=True, verifies=False),
    "plain_at_tls": Case("token", "connection", PLAIN_AT_TLS, {"python": "timeout"}),
    "tls_at_plain": Case("token", "connection", TLS_AT_PLAIN, {"python": "timeout"}),
    "oauth2": Case("oauth2", "ok"),
    "oauth2_over_tls": Case("oauth2", "ok", TLS),
    "oauth2_closed_topic": Case("oauth2", "authorization", is_closed=True),
    # Java's client closes its connection when it is given no token, and says what it notices first.
    "oauth2_wrong_secret": Case(
        "oauth2 wrong secret", "authentication", differs={"java": f"authentication{OR}connection"}
    ),
    "oauth2_other_audience": _refused("oauth2 other audience"),
}
"""On a broker with a secret key of tokens, passwords and certificates."""

PUBLIC_KEY_CASES: Mapping[str, Case] = {
    "public_key": Case("token of the pair", "ok"),
    "public_key_closed_topic": Case("token of the pair", "authorization", is_closed=True),
    "public_key_of_another": _refused("token of another pair"),
    "public_key_expired": _refused("token of the pair expired"),
    "public_key_other_audience": _refused("token of the pair other audience"),
    "public_key_as_secret": _refused("token by the public key as a secret"),
    "other_name": Case("token of the pair", "connection", TLS, {"go": "tls"}),
    "other_name_unverified": Case("token of the pair", "ok", TLS, {"go": "tls"}, verifies=False),
}
"""On a broker with a public key of tokens, whose certificate is for another name than clients ask for.

Go's client verifies the name whatever it is told.
"""

ADMIN_CASES: Mapping[str, Case] = {
    "token": Case("token", "ok"),
    "token_over_tls": Case("token", "ok", TLS),
    "token_closed": Case("token", "authorization", is_closed=True),
    "token_of_another_key": Case("token of another key", "authentication"),
    "token_expired": Case("token expired", "authentication"),
    "token_other_audience": Case("token other audience", "authentication"),
    "token_unsigned": Case("token unsigned", "authentication"),
    "nothing": Case("nothing", "authentication"),
    "password": Case("password", "ok"),
    "password_wrong": Case("password wrong", "authentication"),
    "certificate": Case("certificate", "ok", TLS),
    "certificate_closed": Case("certificate", "authorization", TLS, is_closed=True),
    "certificate_expired": Case("certificate expired", "connection", TLS),
    "certificate_of_others": Case("certificate of others", "connection", TLS, on_pulsar={"admin": "authentication"}),
    "certificate_revoked": Case("certificate revoked", "connection", TLS, on_pulsar={"admin": "ok"}),
    "untrusted": Case("token", "connection", TLS, trusts_others=True),
    "plain_at_tls": Case("token", "connection", PLAIN_AT_TLS),
    "tls_at_plain": Case("token", "connection", TLS_AT_PLAIN),
    "oauth2": Case("oauth2", "ok"),
    "oauth2_wrong_secret": Case("oauth2 wrong secret", "authentication"),
    "oauth2_other_audience": Case("oauth2 other audience", "authentication"),
}
"""Of `pulsar-admin`, which asks for the topics of a namespace, on a broker with a secret key."""

PUBLIC_KEY_ADMIN_CASES: Mapping[str, Case] = {
    "public_key": Case("token of the pair", "ok"),
    "public_key_as_secret": Case("token by the public key as a secret", "authentication"),
    "other_name": Case("token of the pair", "connection", TLS),
    "other_name_unverified": Case("token of the pair", "ok", TLS, verifies=False),
}
"""Of `pulsar-admin` on a broker as for `PUBLIC_KEY_CASES`."""
