"""Authentication with a token: a string, a file that is read on each use, or the result of a function."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...errors import CredentialsUnavailable, InvalidConfig
from .authentication import METHOD_HEADER, Authentication
from .secret_file import path_of, read_secret


class AuthenticationToken(Authentication):
    """Authenticates with a token, such as a JWT."""

    method = "token"

    def __init__(self, token: str | Callable[[], str]) -> None:
        """Create the credentials; a token file is read later.

        Args:
            token: the bare token, ``token:…`` or ``{"token": "…"}``; ``file:///path`` of a file that contains it, read
                for each connection; or a function that returns it, called on a thread for each connection.

        Raises:
            InvalidConfig: ``token`` has none of these forms.
        """
        self._supply = token if callable(token) else _supplier(token)

    def data(self) -> bytes:
        """Return the token as bytes."""
        return self._token().encode()

    def headers(self) -> dict[str, str]:
        """Return the ``Bearer`` authorization header."""
        return {"Authorization": f"Bearer {self._token()}", METHOD_HEADER: self.method}

    def _token(self) -> str:
        token = self._supply()
        if not isinstance(token, str):
            raise CredentialsUnavailable(f"the token function returned {type(token).__name__}: expected str")
        return checked_token(token)


def checked_token(token: str) -> str:
    """Return a token without surrounding white space.

    Raises:
        CredentialsUnavailable: the token is empty, or has characters that are not allowed in headers.
    """
    token = token.strip()
    if not token:
        raise CredentialsUnavailable("the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsUnavailable("invalid token: must not contain white space or non-ASCII characters")
    return token


def _supplier(text: str) -> Callable[[], str]:
    if not isinstance(text, str):
        raise InvalidConfig(f"invalid token of type {type(text).__name__}: expected a string or a function")
    text = text.strip()
    if text.startswith("file:"):
        path = path_of(text, "token file")

        def read() -> str:
            return read_secret(path, "token file").decode("utf-8", "replace")

        return read
    if text.startswith("{"):
        text = _token_in(text)
    token = text.removeprefix("token:").strip()
    try:
        checked_token(token)
    except CredentialsUnavailable as error:
        raise InvalidConfig(f"{error}: expected token:…, file:///… or a bare token") from None
    return lambda: token


def _token_in(text: str) -> str:
    try:
        content: Any = json.loads(text)
    except ValueError:
        content = None
    token = content.get("token") if isinstance(content, dict) else None
    if not isinstance(token, str):
        raise InvalidConfig('invalid token parameters: expected a JSON object with a string "token"')
    return token
