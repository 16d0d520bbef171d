"""Readers that convert values of a server's file, from YAML or ``key=value`` lines, to settings.

Values in ``.conf`` files are always strings, so numbers and booleans are also accepted as strings. Readers raise
ValueError with the expected values as message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...broker.listeners import BindAddress, Listeners, check_host, read_bind_addresses, read_listeners
from ...errors import InvalidConfig
from ...web.same_site import host_name

MIB = 1024 * 1024
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}(\.[0-9]{0,19})?([eE][+-]?[0-9]{1,2})?")
_STORES_OF_PULSAR = ("zk:", "memory:", "rocksdb:", "etcd:", "oxia:", "sqlite:")


def whole(value: Any) -> int:
    """Read a whole number."""
    if type(value) is int:
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise ValueError("expected a whole number")


def number(value: Any) -> float:
    """Read a number."""
    if type(value) in (int, float):
        return float(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    raise ValueError("expected a number")


def truth(value: Any) -> bool:
    """Read a boolean."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("expected true or false")


def text(value: Any) -> str:
    """Read a non-empty string."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected a string")
    return value


def one_of(*allowed: str) -> Callable[[Any], str]:
    """Return a reader for one of the given words."""

    def read(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"expected {' or '.join(allowed)}")
        return str(value)

    return read


def words(value: Any) -> tuple[str, ...]:
    """Read words from a list or from a comma-separated string."""
    given = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise ValueError("expected a list of words")
    return tuple(given)


def scaled(factor: float) -> Callable[[Any], float]:
    """Return a reader for a number that is multiplied by a factor, such as 0.001 for milliseconds."""
    return lambda value: number(value) * factor


def mebibytes(value: Any) -> int:
    """Read a whole number of mebibytes, and return bytes."""
    return whole(value) * MIB


def store_url(value: Any) -> str:
    """Read the URL of a metadata store; as in Pulsar, servers without a scheme mean ZooKeeper."""
    url = text(value)
    return url if url.startswith(_STORES_OF_PULSAR) or "://" in url else f"zk:{url}"


def host_names(value: Any) -> tuple[str, ...]:
    """Read host names from a list or from a comma-separated string."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError("expected host names without ports, such as [magnetar.example.com]")
    try:
        return tuple(host_name(name) for name in given)
    except InvalidConfig as error:
        raise ValueError(str(error)) from error


def advertised_host(value: Any) -> str:
    """Read the advertised host name or address."""
    return check_host("host", text(value))


def listeners(value: Any) -> Listeners:
    """Read the addresses of advertised listeners."""
    return read_listeners(_joined(value))


def bind_addresses(value: Any) -> tuple[BindAddress, ...]:
    """Read additional addresses to listen on."""
    return read_bind_addresses(_joined(value))


def _joined(value: Any) -> str:
    return ",".join(words(value))


def texts(value: Any) -> tuple[str, ...]:
    """Read strings from a list; as in Pulsar's files, an empty string means an empty list."""
    if value in (None, ""):
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("expected a list of regular expressions, such as ['https://packages.example.com/.*']")
    return tuple(value)


def settings(value: Any) -> dict[str, Any]:
    """Read an object."""
    if not isinstance(value, dict):
        raise ValueError("expected an object, such as {path: /run/secrets}")
    return {str(name): one for name, one in value.items()}


def process_users(value: Any) -> dict[str, str]:
    """Read system user names by tenant, from an object or from a string ``tenant=user,*=user``."""
    if isinstance(value, str):
        pairs = [one.partition("=") for one in value.split(",")]
        value = {tenant.strip(): user.strip() for tenant, _, user in pairs}
        if len(value) < len(pairs):
            raise ValueError("a tenant is listed twice")
    if not isinstance(value, dict) or not all(isinstance(one, str) and one for pair in value.items() for one in pair):
        raise ValueError('expected system users by tenant, such as {acme: fn-acme, "*": nobody}')
    return dict(value)


def no_spark_remote(value: Any) -> str:
    """Reject Spark Connect servers."""
    from ...spark.session_config import NO_CONNECT  # imported here, as it is rarely needed

    raise ValueError(f"Spark Connect servers are not supported: {NO_CONNECT}")


def spark_settings(value: Any) -> dict[str, str]:
    """Read Spark's own settings by name; booleans are formatted as in YAML."""
    if not isinstance(value, dict) or not all(isinstance(one, str | int | float) for one in value.values()):
        raise ValueError("expected names and values of Spark settings, such as spark.cores.max: 4")
    return {str(name): str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}
