"""``magnetar tokens``: creates keys and signed tokens, like ``pulsar tokens``."""

from __future__ import annotations

import base64
import json
import re
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import AuthenticationError
from ...security.authentication.keys import key_bytes
from ..failure import Failure, Group
from ..output import print_json
from ..settings import current
from .files import write_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Length of new secrets in bytes, by algorithm."""
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
RSA_BITS = 2048
_TIME = re.compile(r"([0-9]{1,9})(s|m|h|d|w|y)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}

KEY_FORMS = "a path, file:///path, data:;base64,…, or base64"
secret_option = click.option("-sk", "--secret-key", metavar="KEY", help=f"The secret: {KEY_FORMS}.")


def algorithm_option(*names: str, default: str | None = None) -> Decorator:
    """Return the option for the signature algorithm."""
    return click.option(
        "-a", "--signature-algorithm", "algorithm", type=click.Choice(names), default=default, show_default=True,
        help="Signature algorithm.",
    )  # fmt: skip


@click.group(cls=Group)
def tokens() -> None:
    """Create keys and tokens, and inspect tokens. These commands do not contact a server."""


@tokens.command("create-secret-key")
@algorithm_option(*SECRET_BYTES, default="HS256")
@click.option("-o", "--output", metavar="FILE", help="File to write, readable only by you (default: print it).")
@click.option("-b", "--base64", "as_base64", is_flag=True, help="Encode it in base64.")
@click.pass_context
def create_secret_key(ctx: click.Context, algorithm: str, output: str | None, as_base64: bool) -> None:
    """Create a secret for tokenSecretKey; keep it safe, as it allows creating tokens."""
    key = secrets.token_bytes(SECRET_BYTES[algorithm])
    content = base64.b64encode(key) if as_base64 else key
    if output is not None:
        write_new(Path(output), content, is_secret=True)
    elif current(ctx).output == "json":
        print_json({"secretKey": base64.b64encode(key).decode()})
    elif as_base64:
        click.echo(content.decode())
    elif sys.stdout.isatty():
        raise Failure("a secret is binary: use --output FILE, or --base64 to print it")
    else:
        sys.stdout.buffer.write(content)


@tokens.command("create-key-pair")
@algorithm_option(*_RSA, *_EC, default="RS256")
@click.option(
    "--output-private-key",
    metavar="FILE",
    required=True,
    help="File for the private key; keep it safe, as it allows creating tokens.",
)
@click.option(
    "--output-public-key", metavar="FILE", required=True, help="File for the public key, for tokenPublicKey on servers."
)
def create_key_pair(algorithm: str, output_private_key: str, output_public_key: str) -> None:
    """Create a private key to sign tokens and a public key to verify them, both in DER format."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    key: RSAPrivateKey | EllipticCurvePrivateKey
    if algorithm in _EC:
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        key = ec.generate_private_key(curves[algorithm])
    else:
        key = rsa.generate_private_key(65537, RSA_BITS)
    encoding = serialization.Encoding.DER
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_new(Path(output_private_key), private, is_secret=True)
    write_new(Path(output_public_key), public, is_secret=False)


@tokens.command()
@algorithm_option(*SECRET_BYTES, *_RSA, *_EC)
@click.option("-s", "--subject", required=True, metavar="ROLE", help="Role of the token.")
@click.option("-e", "--expiry-time", metavar="TIME", help="Validity, such as 30s, 1h, 3d or 10y (default: unlimited).")
@secret_option
@click.option("-pk", "--private-key", metavar="KEY", help=f"The private key, in DER or PEM format: {KEY_FORMS}.")
@click.option("-hs", "--headers", multiple=True, metavar="NAME=VALUE", help="Additional headers, such as kid=7.")
@click.option("--audience", metavar="NAME", help="Audience, the claim aud (not in Pulsar's tool).")
@click.pass_context
def create(
    ctx: click.Context, /, algorithm: str | None, secret_key: str | None, private_key: str | None, **more: Any
) -> None:
    """Print a token for a role."""
    key, algorithms = _signing_key(secret_key, private_key)
    chosen = algorithm or algorithms[0]
    if chosen not in algorithms:
        raise Failure(f"--signature-algorithm {chosen} does not match the key: expected {', '.join(algorithms)}")
    claims: dict[str, Any] = {"sub": more["subject"]}
    if more["audience"] is not None:
        claims["aud"] = more["audience"]
    if more["expiry_time"] is not None:
        claims["exp"] = int(time.time()) + seconds(more["expiry_time"])
    import jwt

    token = jwt.encode(claims, key, chosen, headers=dict(map(_header, more["headers"])))
    if current(ctx).output == "json":
        print_json({"token": token})
    else:
        click.echo(token)


def seconds(text: str) -> int:
    """Parse a duration such as 3d, and return it in seconds.

    Raises:
        Failure: the duration is invalid.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise Failure(f"invalid --expiry-time {text[:40]!r}: expected, for example, 30s, 5m, 1h, 3d, 2w or 10y")
    return int(match[1]) * _SECONDS[match[2]]


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or name in ("alg", "crit", "b64"):
        raise Failure(
            f"invalid --headers {text[:40]!r}: expected name=value of a header that can be set, such as kid=7"
        )
    return name, value


def _signing_key(secret_key: str | None, private_key: str | None) -> tuple[Any, tuple[str, ...]]:
    """Return a key and its signature algorithms, the usual one first."""
    if (secret_key is None) == (private_key is None):
        raise Failure("no signing key specified: add --secret-key or --private-key")
    if secret_key is not None:
        from ...security.authentication.tokens import secret_verifier

        secret = key_bytes("--secret-key", secret_key)
        return secret, secret_verifier(secret, "--secret-key").algorithms
    assert private_key is not None
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    content = key_bytes("--private-key", private_key)
    try:
        load = load_pem_private_key if content.lstrip().startswith(b"-----BEGIN") else load_der_private_key
        key = load(content, None)
    except (ValueError, TypeError) as error:
        raise Failure("--private-key is not a private key in DER or PEM without a passphrase") from error
    if isinstance(key, RSAPrivateKey):
        return key, _RSA
    if isinstance(key, EllipticCurvePrivateKey):
        fitting = tuple(name for name, curve in _EC.items() if curve == key.curve.name)
        if fitting:
            return key, fitting
    raise Failure("unsupported --private-key: expected RSA or one of the curves P-256, P-384 and P-521")


def token_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the three ways to specify a token to a command."""
    command = click.option("-f", "--token-file", metavar="FILE", help="Read the token from a file.")(command)
    command = click.option("-i", "--stdin", "from_stdin", is_flag=True, help="Read the token from standard input.")(
        command
    )
    return click.argument("token", required=False)(command)


def _token(token: str | None, from_stdin: bool, token_file: str | None) -> bytes:
    if (token is not None) + from_stdin + (token_file is not None) != 1:
        raise Failure("specify exactly one token: as an argument, with --stdin, or with --token-file FILE")
    if token_file is not None:
        try:
            return Path(token_file).read_bytes().strip()
        except OSError as error:
            raise Failure(f"--token-file {token_file} cannot be read: {error.strerror}") from error
    text = token if token is not None else sys.stdin.read()
    return text.strip().removeprefix("token:").encode()


@tokens.command()
@token_options
@click.pass_context
def show(ctx: click.Context, token: str | None, from_stdin: bool, token_file: str | None) -> None:
    """Show the content of a token without verifying its signature."""
    shown = _token(token, from_stdin, token_file)
    import jwt

    try:
        found = jwt.decode_complete(shown, options={"verify_signature": False})
    except Exception as error:  # the parser may raise any error for invalid tokens
        raise Failure(f"invalid token: {type(error).__name__}") from error
    if current(ctx).output == "json":
        print_json({"header": found["header"], "payload": found["payload"]})
        return
    click.echo(json.dumps(found["header"]))
    click.echo("---")
    click.echo(json.dumps(found["payload"], ensure_ascii=False))


@tokens.command()
@algorithm_option(*SECRET_BYTES, *_RSA, *_EC)
@secret_option
@click.option("-pk", "--public-key", metavar="KEY", help=f"The public key, in DER or PEM format: {KEY_FORMS}.")
@token_options
def validate(
    algorithm: str | None,
    secret_key: str | None,
    public_key: str | None,
    token: str | None,
    from_stdin: bool,
    token_file: str | None,
) -> None:
    """Verify a token's signature and times like a server, and show its content; exits with 1 if it is invalid."""
    from ...security.authentication.settings import ServerSecurity
    from ...security.authentication.tokens import CURVES, judge, public_verifier, secret_verifier

    if (secret_key is None) == (public_key is None):
        raise Failure("no verification key specified: add --secret-key or --public-key")
    shown = _token(token, from_stdin, token_file)
    if secret_key is not None:
        verifier = secret_verifier(key_bytes("--secret-key", secret_key), "--secret-key")
    else:
        assert public_key is not None
        default = next(iter(CURVES.values())) if algorithm in CURVES.values() else "RS256"
        verifier = public_verifier(key_bytes("--public-key", public_key), algorithm or default, "--public-key")
    if algorithm is not None and algorithm not in verifier.algorithms:
        raise Failure(
            f"--signature-algorithm {algorithm} does not match the key: expected {', '.join(verifier.algorithms)}"
        )
    try:
        claims = verifier.claims(shown)
        judge(claims, ServerSecurity(), time.time())
    except AuthenticationError as error:
        raise Failure(f"invalid token: {error}") from error
    click.echo(json.dumps(claims, ensure_ascii=False))
