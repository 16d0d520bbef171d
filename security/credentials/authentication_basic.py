"""Authentication with user name and password."""

from __future__ import annotations

import base64
import json
from typing import Any

from ...errors import InvalidConfig
from .authentication import METHOD_HEADER, Authentication

_FORMS = 'expected {"userId": "…", "password": "…"} or user:password'


class AuthenticationBasic(Authentication):
    """Authenticates with a user name and a password."""

    method = "basic"

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        """Create the credentials.

        Args:
            username: the user name, without a colon.
            password: the password.
            method: name of the method on the server.
            auth_params_string: both as a single string instead: ``{"userId": "…", "password": "…"}`` or
                ``user:password``.

        Raises:
            InvalidConfig: user name or password is missing or invalid.
        """
        if auth_params_string is not None:
            if username is not None or password is not None:
                raise InvalidConfig("auth_params_string cannot be combined with username or password")
            username, password, method = _parse(auth_params_string, method)
        if not isinstance(username, str) or not isinstance(password, str) or not username:
            raise InvalidConfig("basic authentication requires a username and a password")
        if ":" in username:
            raise InvalidConfig("invalid username for basic authentication: must not contain a colon")
        if not isinstance(method, str) or not method:
            raise InvalidConfig("method is empty: omit it for basic")
        self.method = method
        self._data = f"{username}:{password}".encode()

    def data(self) -> bytes:
        """Return ``user:password``."""
        return self._data

    def headers(self) -> dict[str, str]:
        """Return the ``Basic`` authorization header."""
        return {"Authorization": f"Basic {base64.b64encode(self._data).decode()}", METHOD_HEADER: self.method}


def _parse(text: str, method: str) -> tuple[str, str, str]:
    """Return user, password and method from a string, which errors do not show."""
    text = text.strip()
    if not text.startswith("{"):
        user, colon, password = text.partition(":")
        if not colon:
            raise InvalidConfig(f"invalid parameters of basic authentication: no colon: {_FORMS}")
        return user, password, method
    try:
        content: Any = json.loads(text)
    except ValueError:
        raise InvalidConfig(f"invalid parameters of basic authentication: not valid JSON: {_FORMS}") from None
    user = content.get("userId", content.get("username"))  # the second name is used by the C++ client
    password = content.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise InvalidConfig(f"invalid parameters of basic authentication: missing userId or password: {_FORMS}")
    return user, password, content.get("method", method)
