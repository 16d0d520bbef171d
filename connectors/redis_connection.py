"""Shared parts of the ``redis`` and ``redis-streams`` connectors: connection settings and error handling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ..api.connector import Retry
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need

_AWAY = (
    "LOADING",
    "OOM",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "UNKILLABLE",
)
"""Prefixes of errors that are temporary or must be fixed by the server's operator."""


@dataclass(kw_only=True)
class RedisConfig:
    """Connection settings of the Redis connectors."""

    redis_hosts: str = option(
        "Server address, or comma-separated cluster nodes, as host:port. The default port is 6379.", aliases=("url",)
    )
    redis_user: str = option("User name; empty for the default user.", default="", secret=True)
    redis_password: str = option("Password of the user.", default="", secret=True, aliases=("password",))
    redis_database: int = option("Database number. Clusters support only 0.", default=0, limits=(0, None))
    client_mode: Literal["Standalone", "Cluster"] = option(
        "Whether Redis runs as a standalone server or as a cluster.", default="Standalone"
    )
    redis_use_tls: bool = option("Whether to use TLS.", default=False)
    redis_tls_verify_peer: Literal["FULL", "CA", "NONE"] = option(
        "Verification of the server's certificate. FULL: issuer and host name; CA: issuer only; NONE: no verification.",
        default="FULL",
    )
    redis_tls_ca_file: str = option(
        "PEM file with trusted CA certificates; empty for the system certificates.", default=""
    )
    keep_alive: bool = option("Whether to enable TCP keepalive.", default=False)
    connect_timeout: int = option("Connection timeout in milliseconds.", default=10_000, limits=(1, 600_000))
    operation_timeout: int = option("Response timeout in milliseconds.", default=10_000, limits=(100, 600_000))


def nodes_of(config: RedisConfig) -> list[tuple[str, int]]:
    """Return the host and port of each node.

    Raises:
        InvalidConfig: redisHosts is not a valid list, or other settings contradict each other.
    """
    nodes = []
    for text in filter(None, map(str.strip, config.redis_hosts.split(","))):
        host, _, port = text.rpartition(":") if ":" in text else (text, ":", "6379")
        if not host.strip("[]") or "/" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidConfig(f"invalid redisHosts entry {text!r}: expected host:port")
        nodes.append((host.strip("[]"), int(port)))
    if not nodes:
        raise InvalidConfig("redisHosts is required, as host:port[,host:port…]")
    if config.client_mode == "Standalone" and len(nodes) > 1:
        raise InvalidConfig(f"redisHosts contains {len(nodes)} nodes, but clientMode Standalone supports only one")
    if config.client_mode == "Cluster" and config.redis_database:
        raise InvalidConfig("redisDatabase must be 0 with clientMode Cluster")
    if config.redis_user and not config.redis_password:
        raise InvalidConfig("redisUser requires redisPassword")
    return nodes


def connect(config: RedisConfig, connector: str) -> Any:
    """Return a connected client. Use it inside `translated`."""
    redis = need("redis", "redis", connector)
    from redis.backoff import NoBackoff
    from redis.retry import Retry as RedisRetry

    nodes = nodes_of(config)
    settings: dict[str, Any] = {
        "username": config.redis_user or None,
        "password": config.redis_password or None,
        "socket_connect_timeout": config.connect_timeout / 1000,
        "socket_timeout": config.operation_timeout / 1000,
        "socket_keepalive": config.keep_alive,
        "retry": RedisRetry(NoBackoff(), 0),  # no retries here: the instance retries and reports the cause
    }
    if config.redis_use_tls:
        settings |= {
            "ssl": True,
            "ssl_cert_reqs": "none" if config.redis_tls_verify_peer == "NONE" else "required",
            "ssl_check_hostname": config.redis_tls_verify_peer == "FULL",
            "ssl_ca_certs": config.redis_tls_ca_file or None,
        }
    with translated(config):
        if config.client_mode == "Cluster":
            startup = [redis.cluster.ClusterNode(host, port) for host, port in nodes]
            client = redis.RedisCluster(startup_nodes=startup, **settings)
        else:
            client = redis.Redis(nodes[0][0], nodes[0][1], db=config.redis_database, **settings)
        client.ping()
    return client


@contextmanager
def translated(config: RedisConfig) -> Iterator[None]:
    """Convert the library's temporary errors to `Retry`. Other server errors are raised unchanged."""
    import redis

    try:
        yield
    except redis.exceptions.AuthenticationError as error:
        raise Retry(f"{config.redis_hosts} rejected the user name or password: {error}") from error
    except redis.exceptions.ResponseError as error:
        if not passes(error):
            raise
        raise Retry(f"{config.redis_hosts}: {error}") from error
    except (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError) as error:
        raise Retry(f"{config.redis_hosts}: {error or type(error).__name__}") from error


def passes(error: Exception) -> bool:
    """Return whether an error from the server is not caused by the command."""
    import redis

    kinds = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)
    if isinstance(error, kinds) or "max number of clients" in str(error):
        return True
    # The library removes the first word if it has an exception class for the error.
    named = (
        redis.exceptions.BusyLoadingError,
        redis.exceptions.ReadOnlyError,
        redis.exceptions.OutOfMemoryError,
        redis.exceptions.NoPermissionError,
        redis.exceptions.ClusterDownError,
        redis.exceptions.TryAgainError,
        redis.exceptions.MasterDownError,
        redis.exceptions.AskError,
    )
    return isinstance(error, named) or str(error).startswith(_AWAY)
