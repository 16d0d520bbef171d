"""Basic authentication: checks names and passwords against the hashes in an htpasswd file.

As in Pulsar, two htpasswd formats are supported: `$apr1$` (MD5, ``htpasswd -m``) and traditional crypt with two
characters of salt (``htpasswd -d``), which uses only the first eight characters of a password. A password must not
contain a colon. Each guess costs half a millisecond of hashing, on a thread; an unknown name costs as much as a wrong
password.

Source: Pulsar's AuthenticationProviderBasic.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import re
import threading
from collections.abc import Mapping
from typing import Any

from ...errors import AuthenticationError, InvalidConfig
from .keys import key_bytes
from .provider import AuthenticationProvider, Identity, Peer
from .settings import ServerSecurity

MAX_PASSWORD_BYTES = 1024
APR1 = re.compile(r"\$apr1\$([^$]{1,8})\$[./0-9A-Za-z]{22}")
CRYPT = re.compile(r"[./0-9A-Za-z]{13}")
_NOBODY = "$apr1$........$......................"
"""Hash that the password of an unknown name is compared with; it matches no password."""

log = logging.getLogger(__name__)
_loading = threading.Lock()
_loaded: dict[str, Any] = {}


def read_users(content: bytes) -> dict[str, str]:
    """Return the users and hashes in an htpasswd file. Users with an unsupported hash format cannot log in.

    Raises:
        InvalidConfig: a line is not ``name:hash``, or the file has no users.
    """
    users: dict[str, str] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, colon, hashed = text.partition(":")
        if not colon or not name or not hashed:
            raise InvalidConfig(f"basicAuthConf: invalid line {number}: expected name:hash as written by htpasswd")
        if not APR1.fullmatch(hashed) and not CRYPT.fullmatch(hashed):
            log.warning(
                "basicAuthConf: ignored line %d: unsupported hash format: create the hash with `htpasswd -m`", number
            )
        users[name] = hashed
    if not users:
        raise InvalidConfig("basicAuthConf has no users: add one with `htpasswd -m`")
    return users


def is_password(password: str, hashed: str) -> bool:
    """Return whether a password matches a hash; the comparison takes constant time."""
    try:
        if match := APR1.fullmatch(hashed):
            made = _scheme("apr_md5_crypt").using(salt=match[1], relaxed=True).hash(password)
        elif CRYPT.fullmatch(hashed):
            made = _scheme("des_crypt").using(salt=hashed[:2], relaxed=True).hash(password)
        else:
            return False
    except (ValueError, TypeError):  # a password that the hash does not support, such as one with a NUL
        return False
    return hmac.compare_digest(made.encode(), hashed.encode())


def _scheme(name: str) -> Any:
    """Return one of passlib's schemes.

    It is loaded only if passwords are configured, and used once under the lock: passlib initialises its names and
    tables on first use, which is not thread-safe.
    """
    with _loading:
        if name not in _loaded:
            import passlib.hash  # type: ignore[import-untyped]

            scheme = getattr(passlib.hash, name)
            scheme.hash("")
            _loaded[name] = scheme
        return _loaded[name]


class BasicProvider(AuthenticationProvider):
    """`AuthenticationProviderBasic`; the role is the name."""

    method = "basic"

    def __init__(self, settings: ServerSecurity) -> None:
        if not settings.basic_auth_conf:
            raise InvalidConfig("authenticationProviders includes basic authentication, but basicAuthConf is not set")
        self._users = read_users(key_bytes("basicAuthConf", settings.basic_auth_conf))

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        """Return the identity of the user with this ``name:password``."""
        if len(data) > MAX_PASSWORD_BYTES:
            raise AuthenticationError(
                f"name and password of {len(data)} bytes exceed the limit of {MAX_PASSWORD_BYTES}"
            )
        try:
            name, password = data.decode().split(":")
        except ValueError as error:  # also raised for bytes that are not UTF-8
            raise AuthenticationError("invalid credentials: expected name:password with exactly one colon") from error
        known = self._users.get(name)
        if not is_password(password, known or _NOBODY) or known is None:
            raise AuthenticationError("unknown name or wrong password")
        return Identity(name)

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        """Return the decoded credentials of the ``Basic`` scheme."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            return base64.b64decode(value.strip(), validate=True)
        except (binascii.Error, ValueError) as error:
            raise AuthenticationError("the Basic credentials are not valid base64") from error
