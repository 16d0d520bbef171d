"""Tokens and keys for tests."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

SECRET = bytes(range(32))
PROVIDER_TOKEN = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
PROVIDER_BASIC = "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic"
PROVIDER_TLS = "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"


def token(role: str | None, key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """Return a signed token of a role; None omits the claim."""
    named = {} if role is None else {"sub": role}
    return jwt.encode(named | claims, key, algorithm)


def data_url(content: bytes) -> str:
    """Return a setting as a data URL with its content."""
    return "data:;base64," + base64.b64encode(content).decode()


def unsigned(claims: dict[str, Any], header: dict[str, Any], signature: bytes = b"") -> str:
    """Return a token with any header and signature."""

    def part(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    return ".".join((part(json.dumps(header).encode()), part(json.dumps(claims).encode()), part(signature)))


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def ec_key(curve: ec.EllipticCurve) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve)


def public_der(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
