"""Authentication with user name and password."""

from __future__ import annotations

import base64
import json
from typing import Any

from ...errors import InvalidConfig
from .authentication import METHOD_HEADER, Authentication

_FORMS = 'give {"userId": "…", "password": "…"} or user:password'


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
            method: the server's name for the method.
            auth_params_string: both as one text instead: ``{"userId": "…", "password": "…"}`` or ``user:password``.

        Raises:
            InvalidConfig: user name or password is missing or invalid.
        """
        if auth_params_string is not None:
            if username is not None or password is not None:
                raise InvalidConfig("auth_params_string has user and password; leave the others out")
            username, password, method = _parse(auth_params_string, method)
        if not isinstance(username, str) or not isinstance(password, str) or not username:
            raise InvalidConfig("basic authentication needs a username and a password")
        if ":" in username:
            raise InvalidConfig("the user of basic authentication has a colon, which ends it on the wire")
        if not isinstance(method, str) or not method:
            raise InvalidConfig("the method of basic authentication is empty; leave it out for basic")
        self.method = method
        self._data = f"{username}:{password}".encode()

    def data(self) -> bytes:
        """Return ``user:password``."""
        return self._data

    def headers(self) -> dict[str, str]:
        """Return the ``Basic`` authorization header."""
        return {"Authorization": f"Basic {base64.b64encode(self._data).decode()}", METHOD_HEADER: self.method}


def _parse(text: str, method: str) -> tuple[str, str, str]:
    """Return user, password and method from a text, which errors do not show."""
    text = text.strip()
    if not text.startswith("{"):
        user, colon, password = text.partition(":")
        if not colon:
            raise InvalidConfig(f"the parameters of basic authentication have no colon; {_FORMS}")
        return user, password, method
    try:
        content: Any = json.loads(text)
    except ValueError:
        raise InvalidConfig(f"the parameters of basic authentication are no JSON; {_FORMS}") from None
    user = content.get("userId", content.get("username"))  # the second name is that of the C++ client
    password = content.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise InvalidConfig(f"the parameters of basic authentication lack userId or password; {_FORMS}")
    return user, password, content.get("method", method)
