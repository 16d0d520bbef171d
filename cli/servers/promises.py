"""Values of Pulsar keys without effect that are rejected, as ignoring them would break a promise.

Other keys without effect are accepted with any value and logged. That would be wrong for values that request
durability, authentication, TLS or isolation, which would then be missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Promise(NamedTuple):
    """A feature that some values of a key request.

    Attributes:
        keys: pattern that matches whole key names.
        asks: returns whether a value, as a string, requests the feature.
        reason: why the value is rejected, and the remedy.
    """

    keys: str
    asks: Callable[[str], bool]
    reason: str


def _any(value: str) -> bool:
    return True


def _is(word: str) -> Callable[[str], bool]:
    return lambda value: value.lower() == word


def _more_than(limit: int) -> Callable[[str], bool]:
    return lambda value: not re.fullmatch(r"[0-9]{1,9}", value) or int(value) > limit


def _is_not_thread_factory(value: str) -> bool:
    return not value.endswith(".ThreadRuntimeFactory")


_PEM = (
    "only PEM files are supported: convert the stores for {0}CertificateFilePath, {0}KeyFilePath and"
    " {0}TrustCertsFilePath"
)

PROMISES: tuple[Promise, ...] = (
    # Durability
    Promise(r"managedLedgerDefault(WriteQuorum|AckQuorum)", _more_than(2),
            "each entry is stored only once, in --data-dir, so these copies would not exist: remove the line"),
    Promise(r"bookkeeperClientEnforceMinNumRacksPerWriteQuorum", _is("true"),
            "each entry is stored only once, in --data-dir, not in several racks: remove the line"),
    Promise(r"numFunctionPackageReplicas|packagesReplicas", _more_than(1),
            "packages are topics, stored only once by the broker, so these copies would not exist: remove the line"),
    Promise(r"enableNonPersistentTopics", _is("false"),
            "non-persistent topics, which may lose messages, are always allowed: remove the line"),
    Promise(r"backlogQuotaCheckEnabled", _is("false"),
            "backlog quotas are always enforced, and consumer_backlog_eviction drops messages: remove the line,"
            " and set no quota"),
    Promise(r"schemaRegistryCompatibilityCheckers", _any,
            "schemas are always checked by the built-in rules: remove the line"),
    # Authentication and authorization
    Promise(r"authorizationProvider", _any,
            "permissions are always checked by the built-in provider (docs/security.md): remove the line"),
    Promise(r"functionAuthProviderClassName", _any,
            "functions always get their credentials from the worker (docs/security.md): remove the line"),
    Promise(r"brokerInterceptors|entryFilterNames", _any,
            "Java classes cannot be loaded, so checks or filters would be missing: remove the line"),
    Promise(r"brokerClient_.*([tT]ls|[sS]sl|[aA]uth).*", _any,
            "configure authentication and TLS of this client with brokerClientAuthenticationPlugin,"
            " brokerClientAuthenticationParameters and brokerClientTrustCertsFilePath"),
    # TLS
    Promise(r"tlsEnabledWithKeyStore", _is("true"), _PEM.format("tls")),
    Promise(r"brokerClientTlsEnabledWithKeyStore", _is("true"), _PEM.format("brokerClient")),
    Promise(r"(brokerClientS|s)slFactoryPlugin(Params)?", _any,
            "Java classes cannot be loaded, and OpenSSL provides TLS: remove the line"),
    Promise(r"webServiceTls(Ciphers|Protocols)", _any,
            "the web port uses the TLS settings of the broker port: set tlsCiphers and tlsProtocols"),
    Promise(r"brokerClientTls(Ciphers|Protocols)", _any,
            "the TLS versions and ciphers of this client cannot be restricted: remove the line"),
    Promise(r"(metadata|configuration)StoreConfigPath", _any,
            "the file is not read, so TLS or authentication set in it would be missing: remove the line"),
    # Isolation
    Promise(r"functionRuntimeFactoryClassName", _is_not_thread_factory,
            "functions run as threads, processes or Spark applications on the worker's machine (--runtime): remove"
            " the line"),
    Promise(r"functionInstanceMaxResources", _any,
            "resource limits for functions are not supported: remove the line"),
    Promise(r"secretsProviderConfiguratorClassName", _any,
            "Java classes cannot be loaded: set secretsProviderClassName (docs/how-to/secrets.md)"),
)  # fmt: skip


def broken_promise(name: str, value: str) -> str | None:
    """Return why a value of a key without effect is rejected, or None if it may be ignored."""
    found = (one for one in PROMISES if re.fullmatch(one.keys, name))
    return next((one.reason for one in found if one.asks(value)), None)
