"""Authentication with a token: a text, a file that is read at each use, or the result of a function."""

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
        """Create the credentials; a file is not read yet.

        Args:
            token: the token alone, as ``token:…`` or as ``{"token": "…"}``; ``file:///path`` of a file that holds it,
                read at each connect; or a function that returns it, called on a thread at each connect.

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
            raise CredentialsUnavailable(f"the function that supplies tokens returned a {type(token).__name__}, no str")
        return checked_token(token)


def checked_token(token: str) -> str:
    """Return a token without surrounding white space.

    Raises:
        CredentialsUnavailable: the token is empty, or has characters not allowed in headers.
    """
    token = token.strip()
    if not token:
        raise CredentialsUnavailable("the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsUnavailable("the token has white space or characters that are not ASCII inside; it is not one")
    return token


def _supplier(text: str) -> Callable[[], str]:
    if not isinstance(text, str):
        raise InvalidConfig(f"the token is of type {type(text).__name__}; give a text or a function")
    text = text.strip()
    if text.startswith("file:"):
        path = path_of(text, "the token's file")

        def read() -> str:
            return read_secret(path, "the token's file").decode("utf-8", "replace")

        return read
    if text.startswith("{"):
        text = _token_in(text)
    token = text.removeprefix("token:").strip()
    try:
        checked_token(token)
    except CredentialsUnavailable as error:
        raise InvalidConfig(f"{error}; give token:…, file:///… or the token alone") from None
    return lambda: token


def _token_in(text: str) -> str:
    try:
        content: Any = json.loads(text)
    except ValueError:
        content = None
    token = content.get("token") if isinstance(content, dict) else None
    if not isinstance(token, str):
        raise InvalidConfig('the parameters of the token are no JSON object with a text "token"')
    return token
