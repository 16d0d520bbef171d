"""Who connects and who asks: methods, anonymous roles, proxies, and what providers of somebody else may do."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import AuthenticationError, AuthorizationError, InvalidConfig
from magnetar.security.authentication import authenticator as rules
from magnetar.security.authentication.authenticator import Authenticator, Shown
from magnetar.security.authentication.opening import open_authenticator
from magnetar.security.authentication.provider import AuthenticationProvider, Identity, Peer
from magnetar.security.authentication.providers import load_providers
from magnetar.security.authentication.proxies import fault_of_pair
from magnetar.security.authentication.sessions import Check, RoleChanged, Session
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.roles import Roles

from ..support.tokens import PROVIDER_BASIC, PROVIDER_TLS, PROVIDER_TOKEN, SECRET, data_url, token

NOW = 1_800_000_000.0
PEER = Peer("/127.0.0.1:1")
CERTIFICATE: Mapping[str, Any] = {"subject": ((("commonName", "carol"),),)}
HTPASSWD = data_url(b"ann:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/")


def opened(*providers: str, **settings: Any) -> Authenticator:
    given = {"token_secret_key": data_url(SECRET), "basic_auth_conf": HTPASSWD, "proxy_roles": ("proxy", "proxy2")}
    found = open_authenticator(
        ServerSecurity(enabled=True, providers=providers or (PROVIDER_TOKEN,), **(given | settings)), lambda: NOW
    )
    assert found is not None
    return found


def shown(role: str, **more: Any) -> Shown:
    return Shown(method="token", data=token(role).encode(), **more)


async def refused(authenticator: Authenticator, shows: Shown) -> str:
    with pytest.raises((AuthenticationError, AuthorizationError)) as caught:
        await authenticator.connect(shows, PEER)
    return str(caught.value) if isinstance(caught.value, AuthorizationError) else "Failed to authenticate"


def headers(**named: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in named.items()]


def test_nothing_is_opened_where_authentication_is_off() -> None:
    assert open_authenticator(ServerSecurity(providers=("nonsense",))) is None


@pytest.mark.parametrize(
    ("providers", "reason"),
    [
        ((), "authenticationEnabled requires authenticationProviders"),
        (("org.apache.pulsar.broker.authentication.AuthenticationProviderSasl",), "unknown provider"),
        (("nonsense",), "unknown provider 'nonsense'"),
        (("no.such.module.Class",), "cannot import no.such.module.Class: ModuleNotFoundError"),
        (("json.JSONDecoder",), "is not a subclass of magnetar.security.authentication.provider"),
        ((f"{__name__}.Broken",), "Broken: ZeroDivisionError"),
        ((f"{__name__}:Nameless",), "has no method"),
    ],
)
def test_providers_that_cannot_work_are_refused(providers: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_providers(ServerSecurity(enabled=True, providers=providers))
    assert reason in str(caught.value)


class Broken(AuthenticationProvider):
    method = "broken"

    def __init__(self, settings: ServerSecurity) -> None:
        raise ZeroDivisionError


class Nameless(AuthenticationProvider):
    pass


class Badges(AuthenticationProvider):
    """A provider of somebody else."""

    method = "badge"

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        self.thread = threading.current_thread().name
        match data:
            case b"fails":
                raise ZeroDivisionError
            case b"wrong type":
                return "ann"  # type: ignore[return-value]
            case b"good":
                return Identity("ann", now_s + 5)
        raise AuthenticationError("no such badge")

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        if headers.get("x-badge") == "unreadable":
            raise ZeroDivisionError
        return headers["x-badge"].encode() if "x-badge" in headers else None


async def test_a_provider_of_ones_own_works_in_a_thread_and_cannot_break_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = ServerSecurity(enabled=True, providers=("x",))
    badges = Badges(settings)
    authenticator = Authenticator(settings, [badges], lambda: NOW)
    session = await authenticator.connect(Shown(method="badge", data=b"good"), PEER)
    assert session.roles == Roles("ann", None, NOW + 5)
    assert badges.thread.startswith("authentication")
    for data in (b"bad", b"fails", b"wrong type"):
        with pytest.raises(AuthenticationError):
            await authenticator.connect(Shown(method="badge", data=data), PEER)
    assert "Badges raised" in caplog.text
    assert (await authenticator.request(headers(x_badge="good"), PEER)).method == "badge"
    with pytest.raises(AuthenticationError, match="badge: ZeroDivisionError"):
        await authenticator.request(headers(x_badge="unreadable"), PEER)
    authenticator.close()


async def test_above_a_limit_of_waiting_authentications_more_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_WAITING", 0)
    authenticator = opened(PROVIDER_BASIC)
    with pytest.raises(AuthenticationError, match="0 authentications are in progress"):
        await authenticator.connect(Shown(method="basic", data=b"ann:myPassword"), PEER)


async def test_the_method_is_named_by_the_client_and_alone_asked() -> None:
    authenticator = opened(PROVIDER_TOKEN, PROVIDER_BASIC, PROVIDER_TLS)
    with_certificate = Peer("", CERTIFICATE)
    assert (await authenticator.connect(shown("ann"), with_certificate)).roles.role == "ann"
    assert (await authenticator.connect(Shown(method="tls"), with_certificate)).roles.role == "carol"
    assert (await authenticator.connect(Shown(method="basic", data=b"ann:myPassword"), PEER)).roles.role == "ann"
    for method in ("none", "", "athenz", "TOKEN"):
        with pytest.raises(AuthenticationError):
            await authenticator.connect(Shown(method=method, data=token("ann").encode()), with_certificate)
    authenticator.close()


async def test_the_anonymous_role_is_for_other_methods_and_not_for_bad_credentials() -> None:
    authenticator = opened(anonymous_role="anon")
    for method in ("none", "basic"):
        session = await authenticator.connect(Shown(method=method), PEER)
        assert session.roles == Roles("anon")
    for data in (b"", b"garbage", token("ann", exp=int(NOW) - 1).encode()):
        with pytest.raises(AuthenticationError):
            await authenticator.connect(Shown(method="token", data=data), PEER)
    with pytest.raises(AuthenticationError, match="anonymous session"):
        await authenticator.renew(await authenticator.connect(Shown(method="none"), PEER), token("anon").encode(), PEER)


async def test_over_http_bad_credentials_become_anonymous_unless_the_method_is_named() -> None:
    authenticator = opened(anonymous_role="anon")
    for authorization in ("Bearer garbage", "nonsense", ""):
        answer = await authenticator.request(headers(authorization=authorization), PEER)
        assert (answer.roles, answer.method) == (Roles("anon"), "")
        with pytest.raises(AuthenticationError):
            await authenticator.request(headers(authorization=authorization, x_pulsar_auth_method_name="token"), PEER)


@pytest.mark.parametrize(
    ("authorization", "is_good"),
    [
        ("Bearer {}", True), ("Bearer  {}", True), ("bearer {}", False), ("{}", False), ("Bearer ", False),
        ("Bearer", False), ("Basic {}", False), ("Bearer {}x", False),
    ],
)  # fmt: skip
async def test_forms_of_the_header(authorization: str, is_good: bool) -> None:
    given = headers(authorization=authorization.format(token("ann")))
    if is_good:
        assert (await opened().request(given, PEER)).roles.role == "ann"
    else:
        with pytest.raises(AuthenticationError):
            await opened().request(given, PEER)


async def test_over_http_the_first_provider_that_succeeds_counts() -> None:
    peer, given = Peer("", CERTIFICATE), headers(authorization=f"Bearer {token('ann')}")
    first_token = await opened(PROVIDER_TOKEN, PROVIDER_TLS).request(given, peer)
    assert (first_token.roles.role, first_token.method) == ("ann", "token")
    first_tls = await opened(PROVIDER_TLS, PROVIDER_TOKEN).request(given, peer)
    assert (first_tls.roles.role, first_tls.method) == ("carol", "tls")
    bad = await opened(PROVIDER_TOKEN, PROVIDER_TLS).request(headers(authorization="Bearer x"), peer)
    assert bad.roles.role == "carol"


async def test_a_header_that_says_who_asks_may_be_there_once_only() -> None:
    for name in (b"authorization", b"x-original-principal", b"x-pulsar-auth-method-name"):
        twice = [(b"authorization", f"Bearer {token('ann')}".encode()), (name, b"a"), (name, b"b")]
        with pytest.raises(AuthenticationError, match="duplicate"):
            await opened().request(twice, PEER)


async def test_proxies_ask_for_others_and_nobody_else_does() -> None:
    authenticator = opened()
    session = await authenticator.connect(shown("proxy", original="ann"), PEER)
    assert session.roles == Roles("proxy", "ann")
    assert await refused(authenticator, shown("proxy")) == "Invalid roles."
    assert await refused(authenticator, shown("proxy", original=" ")) == "Invalid roles."
    assert await refused(authenticator, shown("proxy", original="proxy2")) == "Invalid roles."
    assert await refused(authenticator, shown("ann", original="bob")) == "Invalid roles."
    assert await refused(authenticator, shown("ann", original="ann")) == "Invalid roles."
    assert "without connecting as a ProxyRole" in await refused(authenticator, shown("ann", has_proxy_version=True))
    assert await authenticator.connect(shown("proxy", original="ann", has_proxy_version=True), PEER)


async def test_over_http_ones_own_name_as_the_original_passes() -> None:
    async def roles(role: str, original: str) -> Roles:
        given = headers(authorization=f"Bearer {token(role)}", x_original_principal=original)
        return (await opened().request(given, PEER)).roles

    assert await roles("ann", "ann") == Roles("ann")
    assert await roles("ann", "bob") == Roles("ann", "bob")
    assert await roles("proxy", "ann") == Roles("proxy", "ann")
    assert await roles("proxy", "proxy") == Roles("proxy", "proxy")
    assert fault_of_pair(Roles("ann", "bob"), ("proxy",), own_name_passes=True)
    assert fault_of_pair(Roles("ann", "ann"), ("proxy",), own_name_passes=True) is None


async def test_the_credentials_that_a_proxy_passes_on_say_who_the_original_is() -> None:
    authenticator = opened(authenticate_original=True)
    passed_on = {"original": "whoever", "original_method": "token"}
    end = int(NOW) + 5
    session = await authenticator.connect(
        shown("proxy", original_data=token("ann", exp=end).encode(), **passed_on), PEER
    )
    assert (session.roles, session.is_forwarded) == (Roles("proxy", "ann", end), True)
    assert await refused(authenticator, shown("proxy", original_data=b"bad", **passed_on)) == "Failed to authenticate"
    assert await refused(authenticator, shown("proxy")) == "Invalid roles."
    nameless = {"original": "ann", "original_data": token("ann").encode()}
    assert await refused(authenticator, shown("proxy", **nameless)) == "Failed to authenticate"
    assert await refused(opened(authenticate_original=True, anonymous_role="anon"), shown("proxy", **nameless)) == (
        "Invalid roles."
    )
    renewed = await authenticator.renew(session, token("ann", exp=end + 60).encode(), PEER)
    assert renewed.roles == Roles("proxy", "ann", end + 60)
    with pytest.raises(RoleChanged):
        await authenticator.renew(session, token("proxy").encode(), PEER)


async def test_a_certificate_of_a_proxy_is_not_one_of_its_client() -> None:
    authenticator = opened(PROVIDER_TOKEN, PROVIDER_TLS, authenticate_original=True)
    shows = shown("proxy", original="carol", original_method="tls")
    with pytest.raises(AuthenticationError, match="no client certificate"):
        await authenticator.connect(shows, Peer("", CERTIFICATE))


def test_ended_credentials_are_asked_for_once_and_then_the_connection_ends() -> None:
    session = Session.of(Roles("ann"), ("token", Identity("ann", NOW)), ("", None))
    assert session.check(NOW, is_asked=False, can_answer=True) is Check.KEEP
    assert session.check(NOW + 1, is_asked=False, can_answer=True) is Check.CHALLENGE
    assert session.check(NOW + 1, is_asked=True, can_answer=True) is Check.CLOSE
    assert session.check(NOW + 1, is_asked=False, can_answer=False) is Check.CLOSE


def test_a_proxy_whose_credentials_end_is_not_asked() -> None:
    told = Session.of(Roles("proxy", "ann"), ("token", Identity("proxy", NOW)), ("", Identity("ann")))
    assert told.check(NOW + 1, is_asked=False, can_answer=True) is Check.CLOSE
    passed_on = Session.of(
        Roles("proxy", "ann"), ("token", Identity("proxy", NOW + 9)), ("token", Identity("ann", NOW))
    )
    assert passed_on.check(NOW + 1, is_asked=False, can_answer=True) is Check.CHALLENGE
    assert passed_on.check(NOW + 10, is_asked=False, can_answer=True) is Check.CLOSE


@given(
    st.lists(st.tuples(
        st.sampled_from([b"authorization", b"x-original-principal", b"x-pulsar-auth-method-name", b"x-badge"]),
        st.binary(max_size=40) | st.sampled_from([b"Bearer ", b"Basic ", b"Basic YTpi", b"Bearer a.b.c", b"basic"]),
    ), max_size=4),
    st.sampled_from(["", "anon"]),
)  # fmt: skip
async def test_no_headers_make_it_raise_anything_but_its_refusal(
    given: list[tuple[bytes, bytes]], anonymous: str
) -> None:
    authenticator = opened(PROVIDER_TOKEN, PROVIDER_BASIC, PROVIDER_TLS, anonymous_role=anonymous)
    try:
        answer = await authenticator.request(given, PEER)
    except AuthenticationError:
        return
    finally:
        authenticator.close()
    assert (answer.roles.role, answer.method) == (anonymous, "")


@given(st.builds(
    Shown, method=st.sampled_from(["token", "basic", "tls", "none"]) | st.text(), data=st.binary(max_size=60),
    original=st.text(), original_method=st.text(), original_data=st.binary(max_size=60),
    has_proxy_version=st.booleans(),
))  # fmt: skip
async def test_no_connect_makes_it_raise_anything_but_its_refusals(shows: Shown) -> None:
    authenticator = opened(PROVIDER_TOKEN, PROVIDER_BASIC, PROVIDER_TLS, authenticate_original=True)
    try:
        with pytest.raises((AuthenticationError, AuthorizationError)):
            await authenticator.connect(shows, PEER)
    finally:
        authenticator.close()
