"""The rules that map a connection or a request to `Roles`.

On the binary protocol, the client names its method, and only that provider is called. Over HTTP, unless a header names
the method, every provider that finds credentials in the request is called, in the order of the settings. Clients
without credentials get the anonymous role, if configured. So do HTTP requests with invalid credentials that do not name
a method; on the binary protocol, invalid credentials are rejected. If a provider fails, the peer is rejected. This
module raises only `AuthenticationError` and `AuthorizationError`, with a reason for the log.

Source: Pulsar's ServerCnx.handleConnect, AuthenticationService.authenticateHttpRequest; the security reference,
sections 1, 2, 4 and 6.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from ...errors import AuthenticationError, AuthorizationError
from ..roles import Roles
from .provider import AuthenticationProvider, Identity, Peer
from .proxies import fault_of_pair
from .sessions import Session
from .settings import ServerSecurity

THREADS = 2
MAX_WAITING = 1000
"""Maximum number of authentications that run in these threads or wait for one; others are rejected."""
TIMEOUT_S = 10.0
"""Timeout of a blocking provider, including the wait for a thread."""
METHOD_HEADER = "x-pulsar-auth-method-name"
ORIGINAL_HEADER = "x-original-principal"
ANONYMOUS = ""
"""Method name of unauthenticated clients."""
INVALID_ROLES = "Invalid roles."
NO_PROXY = "Must not set proxyVersion without connecting as a ProxyRole."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The credentials in a CONNECT command.

    Attributes:
        method: `auth_method_name`, or its legacy equivalent.
        data: `auth_data`.
        original: `original_principal`: the proxy's client.
        original_method: the authentication method of the proxy's client.
        original_data: the credentials of the proxy's client.
        has_proxy_version: whether the peer declares itself a proxy.
    """

    method: str
    data: bytes = b""
    original: str = ""
    original_method: str = ""
    original_data: bytes = b""
    has_proxy_version: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of authenticating a request.

    Attributes:
        roles: the client's roles.
        method: the authentication method; `ANONYMOUS` if unauthenticated.
    """

    roles: Roles
    method: str


class Authenticator:
    """Authentication of one server; must be closed with the server."""

    def __init__(
        self,
        settings: ServerSecurity,
        providers: Sequence[AuthenticationProvider],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._providers = tuple(providers)
        self._clock = clock
        self._threads: ThreadPoolExecutor | None = None
        self._waiting = 0

    async def connect(self, shown: Shown, peer: Peer) -> Session:
        """Authenticate a connection and return its session.

        Raises:
            AuthenticationError: the credentials were rejected.
            AuthorizationError: the credentials are valid, but not in this combination; the message is for the client.

        Cancellation: safe.
        """
        settings = self.settings
        method, identity = await self._identify(shown.method, shown.data, peer)
        original: Identity | None = Identity(shown.original) if shown.original.strip() else None
        original_method = ""
        if original is not None and settings.authenticate_original:
            original_method, original = await self._identify(
                shown.original_method or "none", shown.original_data, Peer(peer.address)
            )
            if original_method == ANONYMOUS:
                identity = original  # an anonymous original role makes the whole connection anonymous
        roles = Roles(identity.role, original.role if original is not None else None)
        if fault_of_pair(roles, settings.proxy_roles) is not None:
            raise AuthorizationError(INVALID_ROLES)
        if shown.has_proxy_version and roles.role not in settings.proxy_roles:
            raise AuthorizationError(NO_PROXY)
        return Session.of(roles, (method, identity), (original_method, original))

    async def renew(self, session: Session, data: bytes, peer: Peer) -> Session:
        """Return a session renewed with the credentials of an AUTH_RESPONSE.

        Raises:
            AuthenticationError: the credentials were rejected.
            RoleChanged: the credentials belong to another role.

        Cancellation: safe.
        """
        if session.method == ANONYMOUS:
            raise AuthenticationError("an anonymous session has no credentials to renew")
        shows = peer if not session.is_forwarded else Peer(peer.address)
        _, identity = await self._identify(session.method, data, shows)
        return session.renewed(identity)

    def now_s(self) -> float:
        """Return the clock's time, used to check expiry, in seconds since the epoch."""
        return self._clock()

    async def request(self, headers: Iterable[tuple[bytes, bytes]], peer: Peer) -> Answer:
        """Authenticate an HTTP request.

        The combination of role and original role is checked by each operation, because some operations require neither.

        Args:
            headers: headers, with lower-case names.
            peer: the client.

        Raises:
            AuthenticationError: the request has no valid credentials, and anonymous access does not apply.

        Cancellation: safe.
        """
        found = _single(headers)
        method, identity = await self._identify_request(found, peer)
        original = found.get(ORIGINAL_HEADER, "").strip() or None
        if original == identity.role and original not in self.settings.proxy_roles:
            original = None
        return Answer(Roles(identity.role, original, identity.expires_at), method)

    async def _identify_request(self, headers: Mapping[str, str], peer: Peer) -> tuple[str, Identity]:
        named = headers.get(METHOD_HEADER)
        if named is not None:
            asked = [one for one in self._providers if one.method == named]
            if not asked:
                raise AuthenticationError("the method in the header is not configured on this server")
        else:
            asked = list(self._providers)
        reasons = []
        for provider in asked:
            try:
                data = provider.http_data(headers, peer)
                if data is not None:
                    return provider.method, await self._ask(provider, data, peer)
            except AuthenticationError as error:
                reasons.append(f"{provider.method}: {error}")
            except Exception as error:
                log.exception("authentication provider %s raised", type(provider).__name__)
                reasons.append(f"{provider.method}: {type(error).__name__}")
        if named is None and self.settings.anonymous_role:
            return ANONYMOUS, Identity(self.settings.anonymous_role)
        raise AuthenticationError("; ".join(reasons) or "no credentials")

    async def _identify(self, method: str, data: bytes, peer: Peer) -> tuple[str, Identity]:
        """Return the method that established the identity, and the identity."""
        asked = [one for one in self._providers if one.method == method]
        if not asked:
            if self.settings.anonymous_role:
                return ANONYMOUS, Identity(self.settings.anonymous_role)
            raise AuthenticationError("the method is not configured on this server, and anonymous access is disabled")
        refusal: AuthenticationError | None = None
        for provider in asked:
            try:
                return method, await self._ask(provider, data, peer)
            except AuthenticationError as error:
                refusal = error
        assert refusal is not None
        raise refusal

    async def _ask(self, provider: AuthenticationProvider, data: bytes, peer: Peer) -> Identity:
        """Call a provider, on a thread if it is blocking."""
        call = partial(provider.authenticate, data, peer, self._clock())
        try:
            identity = await self._in_thread(call) if provider.is_blocking else call()
        except AuthenticationError:
            raise
        except TimeoutError as error:
            raise AuthenticationError(f"the provider timed out after {TIMEOUT_S:g} s") from error
        except Exception as error:
            log.exception("authentication provider %s raised", type(provider).__name__)
            raise AuthenticationError(f"the provider failed: {type(error).__name__}") from error
        if not isinstance(identity, Identity) or not isinstance(identity.role, str | None):
            raise AuthenticationError("the provider did not return an Identity with a string role")
        return identity

    async def _in_thread(self, call: Callable[[], Identity]) -> Identity:
        if self._waiting >= MAX_WAITING:
            raise AuthenticationError(f"{self._waiting} authentications are in progress: retry later")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "authentication")
        future = self._threads.submit(call)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _when_open(loop, self._done))
        async with asyncio.timeout(TIMEOUT_S):
            return await asyncio.wrap_future(future)

    def _done(self) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """Close the providers, and stop the threads once they are idle; waiting authentications are cancelled."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        for provider in self._providers:
            provider.close()


def _when_open(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)


def _single(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; authentication headers must be unique.

    Raises:
        AuthenticationError: a header occurs twice, so different readers could see different roles.
    """
    found: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.decode("latin-1")
        if name in found and name in ("authorization", METHOD_HEADER, ORIGINAL_HEADER):
            raise AuthenticationError(f"duplicate {name} header in the request")
        found[name] = value.decode("latin-1")
    return found
