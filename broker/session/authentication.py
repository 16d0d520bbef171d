"""Authentication of connections at CONNECT, and renewal when the credentials expire.

Design: authentication takes time if passwords are hashed or an external provider makes requests. Until it completes,
the connection accepts no commands (`Connection.hold`): commands after CONNECT wait, and only a disconnect can happen
meanwhile. A connection that is not CONNECTED by the first keep-alive tick is closed, even if the provider is
still working.

Source: Pulsar binary protocol, section Authentication; security reference, section 1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import AuthenticationError, AuthorizationError
from ...security import audit
from ...security.authentication.authenticator import Authenticator, Shown
from ...security.authentication.provider import Peer
from ...security.authentication.sessions import Check, RoleChanged, Session
from ...security.roles import Roles
from ...wire import pulsar_api_pb2 as pb
from ...wire.commands import NO_REQUEST, PROTOCOL_VERSION

if TYPE_CHECKING:
    from .connection import Connection

log = logging.getLogger(__name__)

REFUSED = "Failed to authenticate"
REFRESH = b"PulsarAuthRefresh"
_ENUM_PREFIX = len("AuthMethod")


def shown(command: pb.CommandConnect) -> Shown:
    """Return the credentials in a CONNECT."""
    if command.HasField("auth_method_name"):
        method = command.auth_method_name
    elif command.HasField("auth_method"):  # sent by clients that predate method names
        method = pb.AuthMethod.Name(command.auth_method)[_ENUM_PREFIX:].lower()
    else:
        method = "none"
    return Shown(
        method=method,
        data=command.auth_data,
        original=command.original_principal,
        original_method=command.original_auth_method,
        original_data=command.original_auth_data.encode(),
        has_proxy_version=command.HasField("proxy_version"),
    )


class ConnectionAuthentication:
    """Authentication state of one connection.

    Attributes:
        session: authenticated session, or None before authentication.
    """

    def __init__(self, connection: Connection, authenticator: Authenticator) -> None:
        self.session: Session | None = None
        self._connection = connection
        self._authenticator = authenticator
        self._peer = Peer(connection.address, connection.certificate)
        self._can_answer = False
        self._is_asked = False
        self._timer: asyncio.TimerHandle | None = None

    def connect(self, command: pb.CommandConnect, welcome: Callable[[], None]) -> None:
        """Authenticate the client, and send CONNECTED or close the connection."""
        self._can_answer = command.feature_flags.supports_auth_refresh
        self._connection.hold()
        self._connection.start(NO_REQUEST, self._connect(shown(command), welcome))

    async def _connect(self, shows: Shown, welcome: Callable[[], None]) -> None:
        connection = self._connection
        try:
            session = await self._authenticator.connect(shows, self._peer)
        except AuthenticationError as error:
            self._refuse(f"method {shows.method[:40]!r}: {error}", AuthenticationError(REFUSED))
        except AuthorizationError as error:
            self._refuse(str(error), error)
        else:
            if not connection.is_closed:
                self._begin(session)
                welcome()
                self._look_later()
        finally:
            connection.release()

    def respond(self, command: pb.CommandAuthResponse) -> None:
        """Handle the credentials in an AUTH_RESPONSE, whether requested or not."""
        self._is_asked = False
        self._connection.hold()
        self._connection.start(NO_REQUEST, self._renew(command.response.auth_data))

    async def _renew(self, data: bytes) -> None:
        connection, session = self._connection, self.session
        assert session is not None, "AUTH_RESPONSE is legal only after CONNECTED"
        try:
            renewed = await self._authenticator.renew(session, data, self._peer)
        except AuthenticationError as error:
            self._refuse(f"renewal: {error}", AuthenticationError(REFUSED))
        except RoleChanged as error:
            log.warning("closing %r: %s", connection, error)
            connection.close()
        else:
            self._begin(renewed)
            if self._timer is None:
                self._look_later()
        finally:
            connection.release()

    def stop(self) -> None:
        """Stop checking credentials because the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, session: Session) -> None:
        self.session = session
        self._connection.roles = session.roles

    def _refuse(self, reason: str, error: AuthenticationError | AuthorizationError) -> None:
        connection = self._connection
        log.warning("rejected %r: %s", connection, reason)
        roles = connection.roles or Roles(None)
        audit.record(roles, connection.address.lstrip("/"), "CONNECT", "", audit.REFUSED)
        if not connection.is_closed:
            connection.fail(NO_REQUEST, error)
            connection.close()

    def _look_later(self) -> None:
        """Schedule the next check of the credentials, if they expire."""
        connection, session = self._connection, self.session
        if session is None or session.roles.expires_at is None or connection.is_closed:
            self._timer = None
        else:
            self._timer = connection.loop.call_later(self._authenticator.settings.refresh_check_s, self._look)

    def _look(self) -> None:
        connection, session = self._connection, self.session
        assert session is not None
        if not connection.is_held:  # else a response is being checked
            now_s = self._authenticator.now_s()
            check = session.check(now_s, is_asked=self._is_asked, can_answer=self._can_answer)
            if check is Check.CLOSE:
                log.info("closing %r: its credentials expired and were not renewed", connection)
                connection.close()
                return
            if check is Check.CHALLENGE:
                self._is_asked = True
                connection.reply(_challenge(session.method, connection.protocol_version))
        self._look_later()


def _challenge(method: str, version: int) -> pb.CommandAuthChallenge:
    return pb.CommandAuthChallenge(
        challenge=pb.AuthData(auth_method_name=method, auth_data=REFRESH),
        protocol_version=min(version, PROTOCOL_VERSION),
    )
