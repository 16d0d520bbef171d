"""Settings of a worker."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InvalidConfig
from ..runtime.spark.host_config import SparkConfig
from ..security.authentication.settings import ServerSecurity
from ..security.authorization.settings import NO_AUTHORIZATION, AuthorizationSettings
from ..security.credentials.client_security import ClientSecurity
from ..security.server_tls_settings import ServerTls
from ..state.access import StoreAddress, TableKey, has_tls


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of a worker; units are in the names.

    Attributes:
        service_url: broker URL, ``pulsar://host:port``.
        admin_url: URL of the broker's REST interface, ``http://host:port``.
        data_dir: directory for packages and logs; contains only copies and data that can be recreated.
        host: address to listen on.
        advertised_host: address at which others reach this worker (`workerHostname`, ``--advertised-address``); if
            empty, `host`, or this machine's name if `host` means all addresses.
        worker_port: REST port without TLS; 0 for a free port, None for no such port.
        worker_tls_port: REST port with TLS (`workerPortTls`), used by other workers and the broker; 0 for a free port,
            None for no such port.
        tls: TLS settings of `worker_tls_port`; see `ServerTls` for their names in functions_worker.yml.
        security: authentication of clients; see `ServerSecurity`.
        client_security: credentials and TLS settings for connections to the broker and to other workers
            (`brokerClientAuthenticationPlugin`, `brokerClientAuthenticationParameters`,
            `brokerClientTrustCertsFilePath`, …).
        allowed_hosts: host names that are accepted in requests, and whose web pages may send requests, in addition to
            this machine's name and `advertised_host` (`webServiceAllowedHosts`).
        worker_id: unique id in the cluster; empty for ``<host>-<port>``.
        functions_namespace: tenant/namespace of the internal topics (`pulsarFunctionsNamespace`).
        metadata_topic: topic of the functions (`functionMetadataTopicName`).
        assignments_topic: topic of the assignments (`functionAssignmentTopicName`).
        coordination_topic: topic of the leader election (`clusterCoordinationTopicName`).
        packages_topic: topic of the package index; not in Pulsar.
        locks_topic: topic of the locks that prevent two workers from running the same instance; not in Pulsar.
        function_url_patterns: regular expressions for allowed package URLs (http, https or file) of functions
            (`additionalEnabledFunctionsUrlPatterns`); none by default.
        connector_url_patterns: regular expressions for allowed package URLs of sources and sinks
            (`additionalEnabledConnectorUrlPatterns`).
        cluster: name of the Pulsar cluster (`pulsarFunctionsCluster`).
        state_url: URL of the table service, ``bk://host:port``, or ``bk+ssl://host:port`` with TLS
            (`stateStorageServiceUrl`); if empty, functions have no state.
        state_key_file: file with the key of the table service (`stateStorageTokenSecretKey`; not in Pulsar), which is
            used to issue each function a token for its own table. Empty if the service requires no token.
        spark_master: Spark master of Spark functions, as in `spark.session_config.SessionConfig` (`sparkMaster`).
        spark_driver_memory: heap size of the Spark driver's JVM on this worker (`sparkDriverMemory`).
        spark_settings: Spark settings such as ``spark.executor.memory`` (`sparkSettings`), which override ours.
        spark_starts_ahead: whether to start the driver's JVM once the worker has a Spark function, instead of with the
            first run (`sparkStartAhead`); it still ends after `spark_idle_s` without a run.
        spark_class_archive: whether to keep an archive of the JVM's classes for faster starts (`sparkClassArchive`).
        spark_idle_s: idle time after which the Spark driver ends (`sparkIdleTimeoutSec`).
        secrets_provider: class that resolves the secrets of functions, ``module.Class`` (`secretsProviderClassName`);
            if empty, the configs of functions contain the locations of their secrets.
        secrets_config: configuration passed to the secrets provider (`secretsProviderConfig`).
        process_users: system user that runs each tenant's process instances (`processRuntimeUsers`), with ``*`` for all
            other tenants; if empty, the worker's user runs all instances. If set, the thread and Spark runtimes are
            rejected.
        failure_check_ms: interval at which the leader checks the membership (`failureCheckFreqMs`). The default, one
            small request per second, is a thirtieth of Apache Pulsar's.
        liveness_check_ms: interval of the health checks of process instances (`instanceLivenessCheckFreqMs`); an
            instance that does not answer for three intervals is killed and restarted. The default is a third of Apache
            Pulsar's; 0 or less disables the checks.
        reschedule_timeout_ms: time after which the instances of an absent member are moved.
        rebalance_check_s: interval of automatic rebalancing (`rebalanceCheckFreqSec`); 0 or less disables it, because
            each move interrupts an instance.
        compaction_s: interval at which the leader compacts the logs (`topicCompactionFrequencySec`), so that starting
            workers need not read the entire history; 0 or less disables compaction. The default is Apache Pulsar's.
        trigger_timeout_s: time limit for the output of a triggered function.
        request_timeout_s: time limit for a request to find a leader.
        broker_wait_s: time limit for the broker to answer during startup (`initialBrokerReconnectMaxRetries`, with one
            retry per second).
        authorization: authorization settings.
    """

    service_url: str
    admin_url: str
    data_dir: Path
    host: str = "127.0.0.1"
    advertised_host: str = ""
    worker_port: int | None = 6750
    worker_tls_port: int | None = None
    tls: ServerTls = field(default_factory=ServerTls)
    security: ServerSecurity = field(default_factory=ServerSecurity)
    client_security: ClientSecurity = field(default_factory=ClientSecurity)
    allowed_hosts: tuple[str, ...] = ()
    worker_id: str = ""
    functions_namespace: str = "public/functions"
    metadata_topic: str = "metadata"
    assignments_topic: str = "assignments"
    coordination_topic: str = "coordinate"
    locks_topic: str = "instances"
    packages_topic: str = "packages"
    function_url_patterns: tuple[str, ...] = ()
    connector_url_patterns: tuple[str, ...] = ()
    cluster: str = "standalone"
    state_url: str = ""
    state_key_file: str = ""
    spark_master: str = "local[*]"
    spark_driver_memory: str = "1g"
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    spark_starts_ahead: bool = True
    spark_class_archive: bool = True
    spark_idle_s: float = 600.0
    secrets_provider: str = ""
    secrets_config: Mapping[str, Any] = field(default_factory=dict)
    process_users: Mapping[str, str] = field(default_factory=dict)
    failure_check_ms: int = 1000
    liveness_check_ms: int = 10_000
    reschedule_timeout_ms: int = 2000
    rebalance_check_s: float = -1
    compaction_s: float = 1800.0
    trigger_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    broker_wait_s: float = 0.0
    authorization: AuthorizationSettings = NO_AUTHORIZATION

    def __post_init__(self) -> None:
        for name, port in (("workerPort", self.worker_port), ("workerPortTls", self.worker_tls_port)):
            if port is not None and not 0 <= port < 65536:
                raise InvalidConfig(f"invalid {name} {port}: expected a port from 0 to 65535")
        if self.worker_port is None and self.worker_tls_port is None:
            raise InvalidConfig("neither workerPort nor tlsEnabled with workerPortTls is set: set one of them")
        if not self.admin_url.startswith(("http://", "https://")):
            raise InvalidConfig(
                f"invalid pulsarWebServiceUrl {self.admin_url!r} (--admin-url): expected http://host:port"
            )
        if self.state_url:
            StoreAddress(self.state_url, self.client_security).check()
        if self.authorization.is_enabled and not self.authorization.super_user_roles:
            raise InvalidConfig(
                "authorizationEnabled requires superUserRoles: otherwise no role could grant permissions"
            )
        if self.security.enabled and self.state_url and not self.state_key_file:
            raise InvalidConfig(
                "authenticationEnabled: the state store accepts unauthenticated clients; set the same"
                " stateStorageTokenSecretKey for the store and its workers"
            )
        if len(self.functions_namespace.split("/")) != 2:
            raise InvalidConfig(
                f"invalid pulsarFunctionsNamespace {self.functions_namespace!r}: expected tenant/namespace"
            )
        for pattern in (*self.function_url_patterns, *self.connector_url_patterns):
            try:
                re.compile(pattern)
            except re.error as exc:
                raise InvalidConfig(f"invalid URL pattern {pattern!r}: not a regular expression: {exc}") from exc
        names = self.topics
        if len(set(names)) < len(names) or not all(names) or any("/" in name for name in names):
            raise InvalidConfig(
                f"invalid internal topics {', '.join(map(repr, names))}: names must be distinct and must not contain /"
            )
        positive = ("failure_check_ms", "reschedule_timeout_ms", "trigger_timeout_s", "request_timeout_s")
        for name in (*positive, "spark_idle_s"):
            if getattr(self, name) <= 0:
                raise InvalidConfig(f"invalid {name} {getattr(self, name)}: must be positive")
        for tenant, user in self.process_users.items():
            if not tenant or not user or "/" in tenant:
                raise InvalidConfig(
                    f"invalid processRuntimeUsers entry {tenant!r}: {user!r}: expected a tenant or '*', and a system"
                    " user name"
                )
        if self.process_users and self.secrets_provider.endswith("EnvironmentBasedSecretsProvider"):
            raise InvalidConfig(
                "secretsProviderClassName EnvironmentBasedSecretsProvider exposes the worker's environment to"
                " functions, which processRuntimeUsers prevents: remove one of them"
            )
        try:
            self.spark()
        except InvalidConfig as exc:
            raise InvalidConfig(f"sparkMaster, sparkDriverMemory or sparkSettings: {exc}") from exc

    @property
    def broker_security(self) -> ClientSecurity:
        """Security settings for the broker client, which rejects TLS settings that only other parts use."""
        if self.worker_tls_port is None and not has_tls(self.state_url):
            return self.client_security
        return self.client_security.for_urls(self.service_url, self.admin_url)

    def state_key(self) -> TableKey | None:
        """Return the key of the table service, or None if it requires no token.

        Raises:
            InvalidConfig: the file cannot be read or does not contain a key.
        """
        return TableKey.read(self.state_key_file) if self.state_key_file else None

    def spark(self) -> SparkConfig:
        """Return the Spark settings of the worker."""
        return SparkConfig(
            data_dir=self.data_dir,
            master=self.spark_master,
            heap=self.spark_driver_memory,
            settings=self.spark_settings,
            driver_host=self.reachable_host,
            idle_s=self.spark_idle_s,
            starts_ahead=self.spark_starts_ahead,
            class_archive=self.spark_class_archive,
        )

    @property
    def reachable_host(self) -> str:
        """Host name that the worker advertises."""
        if self.advertised_host:
            return self.advertised_host
        return socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 (compared with, not bound to)

    @property
    def topics(self) -> tuple[str, ...]:
        """Local names of all internal topics, except for those that store package contents."""
        own = self.locks_topic, self.packages_topic
        return self.metadata_topic, self.assignments_topic, self.coordination_topic, *own

    def topic(self, local: str) -> str:
        """Return the full name of an internal topic."""
        return f"persistent://{self.functions_namespace}/{local}"
