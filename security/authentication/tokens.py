"""JWT authentication: signed tokens that contain a role and an expiry time.

Design: only the type of the key, never the token, determines the accepted algorithms: HMAC for a secret key, RSA or
ECDSA on its curve for a public key. So `none` is never accepted. A public key set as `tokenSecretKey`, which would let
anyone sign tokens, is rejected at startup. PyJWT verifies the signature; times, audience and role are checked here,
using the caller's clock.

Source: Pulsar's AuthenticationProviderToken; RFC 7519, RFC 8725 sections 3.1, 3.2 and 3.11.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from ...errors import AuthenticationError, InvalidConfig
from .keys import key_bytes
from .provider import AuthenticationProvider, Identity, Peer
from .settings import ServerSecurity

MIN_SECRET_BYTES = 32
MAX_TOKEN_BYTES = 64 * 1024
RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_HMAC = (("HS256", 32), ("HS384", 48), ("HS512", 64))
"""HMAC algorithms and the minimum key length of each, in bytes (RFC 7518 section 3.2)."""
_BEARER = "Bearer "
_OPTIONS = dict.fromkeys(
    ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub", "verify_jti"), False
)

log = logging.getLogger(__name__)


class TokenVerifier:
    """A key and the algorithms that it accepts."""

    def __init__(self, key: Any, algorithms: tuple[str, ...]) -> None:
        self.algorithms = algorithms
        self._key = key

    def claims(self, token: bytes) -> dict[str, Any]:
        """Verify only a token's signature, and return its claims.

        Raises:
            AuthenticationError: the token is malformed, or its signature is invalid.
        """
        import jwt  # imported here, so that it is loaded only if tokens are configured

        if len(token) > MAX_TOKEN_BYTES:
            raise AuthenticationError(f"token of {len(token)} bytes exceeds the limit of {MAX_TOKEN_BYTES}")
        try:
            if jwt.get_unverified_header(token).keys() & {"crit", "zip", "b64"}:
                raise AuthenticationError("the token requires an unsupported extension")
            found = jwt.decode(token, self._key, algorithms=list(self.algorithms), options=_OPTIONS)  # type: ignore[arg-type]
        except AuthenticationError:
            raise
        except jwt.InvalidTokenError as error:
            raise AuthenticationError(f"the token was rejected: {type(error).__name__}") from error
        except Exception as error:  # any parser failure is caused by the peer's bytes
            raise AuthenticationError(f"not a valid token: {type(error).__name__}") from error
        return dict(found)


def secret_verifier(secret: bytes, setting: str = "tokenSecretKey") -> TokenVerifier:
    """Return a verifier of tokens signed with a secret key.

    Args:
        secret: the raw key.
        setting: the setting's name, for errors.

    Raises:
        InvalidConfig: the key is too short, or is a public key.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise InvalidConfig(
            f"{setting} has {len(secret)} bytes, but HS256 requires {MIN_SECRET_BYTES} or more: create a key with"
            " `magnetar tokens create-secret-key`"
        )
    if _is_public(secret):
        raise InvalidConfig(f"{setting} is a public key, not a secret key: set it as the public key instead")
    return TokenVerifier(secret, tuple(name for name, least in _HMAC if len(secret) >= least))


def _is_public(content: bytes) -> bool:
    if content.lstrip().startswith((b"-----BEGIN", b"ssh-")):
        return True
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        load_der_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        return False
    return True


def public_verifier(content: bytes, algorithm: str, setting: str = "tokenPublicKey") -> TokenVerifier:
    """Return a verifier of tokens signed with the private key of a key pair.

    Args:
        content: the public key, SubjectPublicKeyInfo in DER or PEM.
        algorithm: `tokenPublicAlg`; only its key type matters.
        setting: the setting's name, for errors.

    Raises:
        InvalidConfig: the content is not a public key of that type, or its curve is unsupported.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

    kind = RSAPublicKey if algorithm in RSA else EllipticCurvePublicKey if algorithm in CURVES.values() else None
    if kind is None:
        known = ", ".join((*RSA, *CURVES.values()))
        raise InvalidConfig(f"invalid tokenPublicAlg {algorithm!r}: expected one of {known}")
    try:
        load = load_pem_public_key if content.lstrip().startswith(b"-----BEGIN") else load_der_public_key
        key = load(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidConfig(
            f"{setting} is not a public key in DER (SubjectPublicKeyInfo): create a key pair with"
            " `magnetar tokens create-key-pair`"
        ) from error
    if not isinstance(key, kind):
        raise InvalidConfig(f"{setting} is not a key for {algorithm}: set tokenPublicAlg to an algorithm of its type")
    if isinstance(key, RSAPublicKey):
        return TokenVerifier(key, RSA)
    assert isinstance(key, EllipticCurvePublicKey)
    if key.curve.name not in CURVES:
        raise InvalidConfig(
            f"{setting} uses the unsupported curve {key.curve.name}: expected one of {', '.join(CURVES)}"
        )
    return TokenVerifier(key, (CURVES[key.curve.name],))


def verifier_of(settings: ServerSecurity) -> TokenVerifier:
    """Return a server's token verifier; reads files.

    Raises:
        InvalidConfig: no key is configured, or it cannot be used.
    """
    if settings.token_secret_key:
        if settings.token_public_key:
            log.warning("ignoring tokenPublicKey because tokenSecretKey is set: remove one of them")
        return secret_verifier(key_bytes("tokenSecretKey", settings.token_secret_key))
    if settings.token_public_key:
        return public_verifier(key_bytes("tokenPublicKey", settings.token_public_key), settings.token_public_alg)
    raise InvalidConfig(
        "authenticationProviders includes tokens, but no key is set: set tokenSecretKey or tokenPublicKey"
    )


def judge(claims: Mapping[str, Any], settings: ServerSecurity, now_s: float) -> Identity:
    """Return the identity in the claims of a verified token.

    Raises:
        AuthenticationError: the token is expired, not valid yet, for another audience, or has malformed claims.
    """
    skew_s = settings.token_clock_skew_s
    expires_s = _moment(claims, "exp")
    if expires_s is not None and now_s > expires_s + skew_s:
        raise AuthenticationError(f"the token expired {now_s - expires_s:.0f} s ago")
    begins_s = _moment(claims, "nbf")
    if begins_s is not None and now_s < begins_s - skew_s:
        raise AuthenticationError(f"the token is not valid for another {begins_s - now_s:.0f} s")
    if settings.token_audience_claim:
        audience = claims.get(settings.token_audience_claim)
        given = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(one, str) and one == settings.token_audience for one in given):
            raise AuthenticationError("the token is for a different audience")
    role = claims.get(settings.token_auth_claim or "sub")
    if isinstance(role, list):
        role = role[0] if role and isinstance(role[0], str) else None
    if role is not None and not isinstance(role, str):
        raise AuthenticationError(f"token claim {settings.token_auth_claim or 'sub'} is not a string")
    blank = role is None or not role.strip()
    return Identity(None if blank else role, None if expires_s is None else expires_s + skew_s)


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise AuthenticationError(f"token claim {name} is not a number")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise AuthenticationError(f"token claim {name} is not a valid time")
    return seconds


class TokenProvider(AuthenticationProvider):
    """`AuthenticationProviderToken`."""

    method = "token"
    is_blocking = False

    def __init__(self, settings: ServerSecurity) -> None:
        if settings.token_audience_claim and not settings.token_audience:
            raise InvalidConfig("tokenAudienceClaim requires tokenAudience: set the audience of the tokens")
        if settings.token_audience and not settings.token_audience_claim:
            raise InvalidConfig(
                "tokenAudience has no effect without tokenAudienceClaim: set tokenAudienceClaim, usually to aud"
            )
        self._settings = settings
        self._verifier = verifier_of(settings)

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        """Return the identity in a token."""
        if not data:
            raise AuthenticationError("the token is empty")
        return judge(self._verifier.claims(data), self._settings, now_s)

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        """Return the token after ``Bearer``, which is case-sensitive."""
        value = headers.get("authorization", "")
        return value[len(_BEARER) :].strip().encode() if value.startswith(_BEARER) else None
