"""The rules by which a connection or a request becomes `Roles`.

On the binary protocol the client names its method, and that one alone is asked. Over HTTP every provider that is shown
something is asked in the order of the settings, unless a header names the method. Who shows nothing gets the anonymous
role, if there is one; over HTTP bad credentials do, too, where no method is named, while on the binary protocol they
are refused. Whatever a provider fails with, its peer is refused: nothing but `AuthenticationError` and
`AuthorizationError` comes out of here, with a reason that is for the log.

Source: Pulsar's ServerCnx.handleConnect, AuthenticationService.authenticateHttpRequest; reference of security,
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
"""Authentications that wait for these threads or run there; more are refused."""
TIMEOUT_S = 10.0
"""How long a provider that blocks may take, its wait for a thread included."""
METHOD_HEADER = "x-pulsar-auth-method-name"
ORIGINAL_HEADER = "x-original-principal"
ANONYMOUS = ""
"""The method of who was not authenticated."""
INVALID_ROLES = "Invalid roles."
NO_PROXY = "Must not set proxyVersion without connecting as a ProxyRole."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a CONNECT shows.

    Attributes:
        method: `auth_method_name`, or what stands for it.
        data: `auth_data`.
        original: `original_principal`; for whom a proxy asks.
        original_method: how that one authenticated.
        original_data: with what.
        has_proxy_version: whether the client says that it is a proxy.
    """

    method: str
    data: bytes = b""
    original: str = ""
    original_method: str = ""
    original_data: bytes = b""
    has_proxy_version: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Who sends a request.

    Attributes:
        roles: who asks.
        method: how that was found out, `ANONYMOUS` if it was not.
    """

    roles: Roles
    method: str


class Authenticator:
    """Authentication of one server; `close` it with the server."""

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
        """Return who connects.

        Raises:
            AuthenticationError: the credentials are refused.
            AuthorizationError: they are good, but may not be combined so; the text is for the client.

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
                identity = original  # nobody vouches for the pair any more
        roles = Roles(identity.role, original.role if original is not None else None)
        if fault_of_pair(roles, settings.proxy_roles) is not None:
            raise AuthorizationError(INVALID_ROLES)
        if shown.has_proxy_version and roles.role not in settings.proxy_roles:
            raise AuthorizationError(NO_PROXY)
        return Session.of(roles, (method, identity), (original_method, original))

    async def renew(self, session: Session, data: bytes, peer: Peer) -> Session:
        """Return a session as it goes on with the credentials of an AUTH_RESPONSE.

        Raises:
            AuthenticationError: they are refused.
            RoleChanged: they are somebody else's.

        Cancellation: safe.
        """
        if session.method == ANONYMOUS:
            raise AuthenticationError("an anonymous session has no credentials to renew")
        shows = peer if not session.is_forwarded else Peer(peer.address)
        _, identity = await self._identify(session.method, data, shows)
        return session.renewed(identity)

    def now_s(self) -> float:
        """Return the time that expiry is judged by, in seconds since the epoch."""
        return self._clock()

    async def request(self, headers: Iterable[tuple[bytes, bytes]], peer: Peer) -> Answer:
        """Return who sends an HTTP request.

        Whether role and original are a valid pair is judged with each operation, as some need neither.

        Args:
            headers: names in lower case.
            peer: who sends it.

        Raises:
            AuthenticationError: it shows no credentials that are good.

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
                raise AuthenticationError("the method of the header is none of this server's")
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
                log.exception("authentication provider %s failed", type(provider).__name__)
                reasons.append(f"{provider.method}: {type(error).__name__}")
        if named is None and self.settings.anonymous_role:
            return ANONYMOUS, Identity(self.settings.anonymous_role)
        raise AuthenticationError("; ".join(reasons) or "there are no credentials")

    async def _identify(self, method: str, data: bytes, peer: Peer) -> tuple[str, Identity]:
        """Return who shows these credentials of a method, and by which method that is known."""
        asked = [one for one in self._providers if one.method == method]
        if not asked:
            if self.settings.anonymous_role:
                return ANONYMOUS, Identity(self.settings.anonymous_role)
            raise AuthenticationError("the method is none of this server's, and there is no anonymous role")
        refusal: AuthenticationError | None = None
        for provider in asked:
            try:
                return method, await self._ask(provider, data, peer)
            except AuthenticationError as error:
                refusal = error
        assert refusal is not None
        raise refusal

    async def _ask(self, provider: AuthenticationProvider, data: bytes, peer: Peer) -> Identity:
        """Return what one provider says; in a thread, if it may take time."""
        call = partial(provider.authenticate, data, peer, self._clock())
        try:
            identity = await self._in_thread(call) if provider.is_blocking else call()
        except AuthenticationError:
            raise
        except TimeoutError as error:
            raise AuthenticationError(f"the provider took longer than {TIMEOUT_S:g} s") from error
        except Exception as error:
            log.exception("authentication provider %s failed", type(provider).__name__)
            raise AuthenticationError(f"the provider failed: {type(error).__name__}") from error
        if not isinstance(identity, Identity) or not isinstance(identity.role, str | None):
            raise AuthenticationError("the provider returned no Identity with a text as role")
        return identity

    async def _in_thread(self, call: Callable[[], Identity]) -> Identity:
        if self._waiting >= MAX_WAITING:
            raise AuthenticationError(f"{self._waiting} authentications are under way; try again shortly")
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
        """Close the providers, and end the threads once they are done; what waits for them is dropped."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        for provider in self._providers:
            provider.close()


def _when_open(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)


def _single(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; what decides who asks may stand there once only.

    Raises:
        AuthenticationError: it stands there twice, so that two readers might read two roles.
    """
    found: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.decode("latin-1")
        if name in found and name in ("authorization", METHOD_HEADER, ORIGINAL_HEADER):
            raise AuthenticationError(f"the request has two {name} headers")
        found[name] = value.decode("latin-1")
    return found
