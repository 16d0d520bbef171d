"""Readers that convert values of a server's file, from YAML or ``key=value`` lines, to settings.

Values in ``.conf`` files are always text, so numbers and booleans are also accepted as text. Readers raise ValueError
with a text that says what is expected.
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
    """Return a whole number."""
    if type(value) is int:
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise ValueError("a whole number is expected")


def number(value: Any) -> float:
    """Return a number."""
    if type(value) in (int, float):
        return float(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    raise ValueError("a number is expected")


def truth(value: Any) -> bool:
    """Return true or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("true or false is expected")


def text(value: Any) -> str:
    """Return a non-empty text."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text is expected")
    return value


def one_of(*allowed: str) -> Callable[[Any], str]:
    """Return a reader of one of these words."""

    def read(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"{' or '.join(allowed)} is expected")
        return str(value)

    return read


def words(value: Any) -> tuple[str, ...]:
    """Return the words of a list or of a comma-separated text."""
    given = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise ValueError("a list of words is expected")
    return tuple(given)


def scaled(factor: float) -> Callable[[Any], float]:
    """Return a reader of a number that is multiplied by a factor, such as 0.001 for milliseconds."""
    return lambda value: number(value) * factor


def mebibytes(value: Any) -> int:
    """Return a whole number of mebibytes as bytes."""
    return whole(value) * MIB


def store_url(value: Any) -> str:
    """Return the URL of a metadata store; as in Pulsar, servers without a scheme mean ZooKeeper."""
    url = text(value)
    return url if url.startswith(_STORES_OF_PULSAR) or "://" in url else f"zk:{url}"


def host_names(value: Any) -> tuple[str, ...]:
    """Return host names from a list or from a comma-separated text."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError("names of hosts are expected, without ports, such as [magnetar.example.com]")
    try:
        return tuple(host_name(name) for name in given)
    except InvalidConfig as error:
        raise ValueError(str(error)) from error


def advertised_host(value: Any) -> str:
    """Return the advertised host name or address."""
    return check_host("host", text(value))


def listeners(value: Any) -> Listeners:
    """Return the addresses of advertised listeners."""
    return read_listeners(_joined(value))


def bind_addresses(value: Any) -> tuple[BindAddress, ...]:
    """Return additional addresses to listen on."""
    return read_bind_addresses(_joined(value))


def _joined(value: Any) -> str:
    return ",".join(words(value))


def texts(value: Any) -> tuple[str, ...]:
    """Return texts from a list; as in Pulsar's files, an empty text means an empty list."""
    if value in (None, ""):
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("a list of regular expressions is expected, such as ['https://packages.example.com/.*']")
    return tuple(value)


def settings(value: Any) -> dict[str, Any]:
    """Return an object unchanged."""
    if not isinstance(value, dict):
        raise ValueError("an object is expected, such as {path: /run/secrets}")
    return {str(name): one for name, one in value.items()}


def process_users(value: Any) -> dict[str, str]:
    """Return system user names by tenant, from an object or from a text ``tenant=user,*=user``."""
    if isinstance(value, str):
        pairs = [one.partition("=") for one in value.split(",")]
        value = {tenant.strip(): user.strip() for tenant, _, user in pairs}
        if len(value) < len(pairs):
            raise ValueError("each tenant is expected once")
    if not isinstance(value, dict) or not all(isinstance(one, str) and one for pair in value.items() for one in pair):
        raise ValueError('system users by tenant are expected, such as {acme: fn-acme, "*": nobody}')
    return dict(value)


def no_spark_remote(value: Any) -> str:
    """Reject Spark Connect servers."""
    from ...spark.session_config import NO_CONNECT  # imported here, as it is rarely needed

    raise ValueError(f"runs on a server of Spark Connect are not supported: {NO_CONNECT}")


def spark_settings(value: Any) -> dict[str, str]:
    """Return Spark's own settings by name; booleans are written as in YAML."""
    if not isinstance(value, dict) or not all(isinstance(one, str | int | float) for one in value.values()):
        raise ValueError("names of Spark's settings with their values are expected, such as spark.cores.max: 4")
    return {str(name): str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}
