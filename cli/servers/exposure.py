"""Rule for a server's listen address: loopback only, unless clients are authenticated or --insecure is given."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Mapping
from typing import Any

import click

from ..failure import Failure

_log = logging.getLogger(__name__)
PULSAR_HOST = "0.0.0.0"  # noqa: S104 (only compared, not bound)
LOOPBACK = "127.0.0.1"

insecure_option = click.option(
    "--insecure",
    is_flag=True,
    help="Allow other machines to connect without authentication and with full access.",
)


def check_exposure(host: str, is_insecure: bool) -> None:
    """Reject an address reachable from other machines if clients are not authenticated, unless the user allows it.

    Args:
        host: address or name to listen on.
        is_insecure: whether the user allows it.

    Raises:
        Failure: the address is not loopback, and not allowed.
    """
    if not is_insecure and not is_loopback(host):
        raise Failure(
            f"{host} is reachable from other machines, and without authentication any client could run code here:"
            " listen on 127.0.0.1 (--host 127.0.0.1), set authenticationEnabled (docs/security.md), or use"
            " --insecure to allow all clients full access"
        )


def host_in_file(host: str, *, is_open: bool) -> str:
    """Return the listen address to use for the address in a file.

    Pulsar's files contain 0.0.0.0, which is Pulsar's default and so not a deliberate decision: without authentication
    or ``--insecure`` it is replaced by the loopback address, with a log line.

    Args:
        host: address in the file.
        is_open: whether other machines may connect, as clients are authenticated or the user allows it.
    """
    if host != PULSAR_HOST or is_open:
        return host
    _log.warning(
        "bindAddress=%s is Pulsar's default and clients are not authenticated, so listening on %s only: set"
        " authenticationEnabled (docs/security.md), or use --insecure to allow connections from all machines",
        host,
        LOOPBACK,
    )
    return LOOPBACK


def tell_exposure(host: str, *, is_guarded: bool) -> None:
    """Log which clients can access an address; ``is_guarded`` means that clients are authenticated."""
    if is_guarded:
        _log.info("open to authenticated clients (authenticationEnabled)")
    elif is_loopback(host):
        _log.info("open to all users of this machine without authentication; not reachable from other machines")
    else:
        _log.warning(
            "--insecure: all clients that can reach %s have full access without authentication, and can run code here",
            host,
        )


def is_guarded(security: Mapping[str, Any], authorization: Mapping[str, Any]) -> bool:
    """Return whether the settings reject clients without credentials.

    Args:
        security: fields of `ServerSecurity`.
        authorization: fields of `AuthorizationSettings`.
    """
    anonymous = security.get("anonymous_role")
    is_decided = authorization.get("is_enabled") and anonymous not in authorization.get("super_user_roles", ())
    return bool(security.get("enabled")) and bool(not anonymous or is_decided)


def is_loopback(host: str) -> bool:
    """Return whether an address, or all addresses of a name, are reachable from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # listening on it will fail with a better error
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
