"""ASGI middleware that authenticates requests before any other processing.

Roles are stored in the scope as `ROLES`, and the method as `METHOD`. The response to invalid credentials is a 401 on
every path, even one that does not exist, with the same page as from Pulsar's web server. /metrics requires no
authentication unless `authenticateMetricsEndpoint` is set.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import AuthenticationError
from ..security.audit import record
from ..security.roles import Roles
from ..wire.printable import printable
from .call import ROLES
from .http_protocol import CERTIFICATE
from .router import raw_path

if TYPE_CHECKING:
    from ..security.authentication.authenticator import Authenticator

METHOD = "magnetar.method"
"""Scope key for the authentication method, which is empty for the anonymous role or without authentication."""
_SHOWN = 200
"""Maximum length of a path in log lines."""
_OPEN = ("/metrics", "/metrics/")
_PAGE = (
    b'<html>\n<head>\n<meta http-equiv="Content-Type" content="text/html;charset=ISO-8859-1"/>\n'
    b"<title>Error 401 Authentication required</title>\n</head>\n"
    b"<body><h2>HTTP ERROR 401 Authentication required</h2>\n</body>\n</html>\n"
)

_log = logging.getLogger(__name__)


class AuthenticatedRequests:
    """ASGI middleware that authenticates requests.

    Attributes:
        authenticator: authenticates each request; None accepts all requests without a role.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator | None) -> None:
        self.authenticator = authenticator
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate one request and pass it on."""
        scope[ROLES], scope[METHOD] = None, ""
        authenticator = self.authenticator
        if authenticator is not None:
            from ..security.authentication.provider import Peer

            client = scope.get("client")
            peer = Peer(f"{client[0]}:{client[1]}" if client else "", scope.get(CERTIFICATE))
            try:
                answer = await authenticator.request(scope["headers"], peer)
            except AuthenticationError as error:
                if authenticator.settings.authenticate_metrics or raw_path(scope) not in _OPEN:
                    path = raw_path(scope)
                    shown = printable(path[:_SHOWN])
                    _log.warning("rejected %s %s from %s: %s", scope["method"], shown, peer.address, error)
                    record(Roles(None), peer.address, scope["method"], path, "401")
                    # Connection: close avoids reading the rest of a long body.
                    headers = {"content-type": "text/html;charset=iso-8859-1", "connection": "close"}
                    await Response(_PAGE, 401, headers)(scope, receive, send)
                    return
                scope[ROLES] = Roles(None)
            else:
                scope[ROLES], scope[METHOD] = answer.roles, answer.method
        await self._app(scope, receive, send)
