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
        service_url: the broker, ``pulsar://host:port``.
        admin_url: the broker's REST interface, ``http://host:port``.
        data_dir: directory for packages and logs; it contains only copies, or data that can be recreated.
        host: address to listen on.
        advertised_host: where others reach this worker (`workerHostname`, ``--advertised-address``); empty takes
            `host`, or this machine's name when `host` means all addresses.
        worker_port: port of the REST interface without TLS; 0 for a free port, None for no such port.
        worker_tls_port: `workerPortTls`, with TLS; 0 for a free port, None for no such port. Other workers and the
            broker use it.
        tls: TLS settings of that port; see `ServerTls` for the names in functions_worker.yml.
        security: authentication of clients; see `ServerSecurity`.
        client_security: credentials and TLS settings for connections to the broker and to other workers
            (`brokerClientAuthenticationPlugin`, `brokerClientAuthenticationParameters`,
            `brokerClientTrustCertsFilePath`, …).
        allowed_hosts: host names accepted in requests, in addition to this machine's and `advertised_host`, and whose
            web pages may send requests (`webServiceAllowedHosts`).
        worker_id: unique in the cluster; empty for ``<host>-<port>``.
        functions_namespace: tenant/namespace of the internal topics (`pulsarFunctionsNamespace`).
        metadata_topic: topic of the functions (`functionMetadataTopicName`).
        assignments_topic: topic of the assignments (`functionAssignmentTopicName`).
        coordination_topic: topic of the leader election (`clusterCoordinationTopicName`).
        packages_topic: topic of the package names; not in Pulsar.
        locks_topic: topic of the locks that prevent two workers from running the same instance; not in Pulsar.
        function_url_patterns: regular expressions of allowed package URLs of functions, http, https or file
            (`additionalEnabledFunctionsUrlPatterns`); none by default.
        connector_url_patterns: the same for sources and sinks (`additionalEnabledConnectorUrlPatterns`).
        cluster: name of the Pulsar cluster (`pulsarFunctionsCluster`).
        state_url: the table service, ``bk://host:port``, or ``bk+ssl://host:port`` with TLS (`stateStorageServiceUrl`);
            empty: functions have no state.
        state_key_file: file with the key of the table service (`stateStorageTokenSecretKey`; not in Pulsar); each
            function then gets a token for its own table. Empty if the service requires no token.
        spark_master: Spark master of Spark functions, as in `spark.session_config.SessionConfig` (`sparkMaster`).
        spark_driver_memory: heap of their driver's JVM on this worker (`sparkDriverMemory`).
        spark_settings: Spark's own settings, such as ``spark.executor.memory`` (`sparkSettings`); they override ours.
        spark_starts_ahead: start that JVM as soon as the worker has a Spark function (`sparkStartAhead`), not with the
            first run; it still ends after `spark_idle_s` without a run.
        spark_class_archive: keep an archive of the JVM's classes for faster starts (`sparkClassArchive`).
        spark_idle_s: how long their idle driver waits for another run before it ends (`sparkIdleTimeoutSec`).
        secrets_provider: class that resolves the secrets of functions, ``module.Class`` (`secretsProviderClassName`);
            empty: functions' configs say where their secrets are.
        secrets_config: configuration passed to the secrets provider (`secretsProviderConfig`).
        process_users: system user that runs each tenant's process instances (`processRuntimeUsers`), ``*`` for tenants
            not listed; empty: the worker's user runs all. If set, threads and Spark are refused.
        failure_check_ms: how often the leader checks the membership (`failureCheckFreqMs`). The default is a thirtieth
            of Apache Pulsar's: one small request a second.
        liveness_check_ms: how often process instances are health-checked (`instanceLivenessCheckFreqMs`); one that has
            not answered for three times as long is killed and restarted. The default is a third of Apache Pulsar's.
            0 or less: never.
        reschedule_timeout_ms: how long a member may be absent before its instances are moved.
        rebalance_check_s: how often the leader rebalances by itself (`rebalanceCheckFreqSec`); 0 or less: never, since
            each move interrupts an instance.
        compaction_s: how often the leader compacts the logs (`topicCompactionFrequencySec`), so that a starting worker
            does not read the whole history; 0 or less: never. The default is Apache Pulsar's.
        trigger_timeout_s: how long a trigger waits for the function's output.
        request_timeout_s: how long a request waits for a leader.
        broker_wait_s: how long startup waits for a broker that does not answer (`initialBrokerReconnectMaxRetries`,
            one retry a second).
        authorization: the authorization settings.
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
                raise InvalidConfig(f"{name} {port} is not a port: 0 to 65535")
        if self.worker_port is None and self.worker_tls_port is None:
            raise InvalidConfig("workerPort is not set, and nor is tlsEnabled with workerPortTls; set one of them")
        if not self.admin_url.startswith(("http://", "https://")):
            raise InvalidConfig(f"pulsarWebServiceUrl {self.admin_url!r} (--admin-url) is not http://host:port")
        if self.state_url:
            StoreAddress(self.state_url, self.client_security).check()
        if self.authorization.is_enabled and not self.authorization.super_user_roles:
            raise InvalidConfig(
                "authorizationEnabled requires superUserRoles: otherwise no role could grant permissions"
            )
        if self.security.enabled and self.state_url and not self.state_key_file:
            raise InvalidConfig(
                "authenticationEnabled: the state store accepts unauthenticated clients; set the same"
                " stateStorageTokenSecretKey for it and its workers"
            )
        if len(self.functions_namespace.split("/")) != 2:
            raise InvalidConfig(f"pulsarFunctionsNamespace {self.functions_namespace!r} is not tenant/namespace")
        for pattern in (*self.function_url_patterns, *self.connector_url_patterns):
            try:
                re.compile(pattern)
            except re.error as exc:
                raise InvalidConfig(f"invalid URL pattern {pattern!r}: not a regular expression: {exc}") from exc
        names = self.topics
        if len(set(names)) < len(names) or not all(names) or any("/" in name for name in names):
            raise InvalidConfig(f"the internal topics {', '.join(map(repr, names))} must be different names without /")
        positive = ("failure_check_ms", "reschedule_timeout_ms", "trigger_timeout_s", "request_timeout_s")
        for name in (*positive, "spark_idle_s"):
            if getattr(self, name) <= 0:
                raise InvalidConfig(f"{name} {getattr(self, name)} must be positive")
        for tenant, user in self.process_users.items():
            if not tenant or not user or "/" in tenant:
                raise InvalidConfig(
                    f"processRuntimeUsers {tenant!r}: {user!r} is not a tenant, or '*', and a system user's name"
                )
        if self.process_users and self.secrets_provider.endswith("EnvironmentBasedSecretsProvider"):
            raise InvalidConfig(
                "secretsProviderClassName EnvironmentBasedSecretsProvider gives functions the worker's environment,"
                " which processRuntimeUsers keeps from them; remove one of them"
            )
        try:
            self.spark()
        except InvalidConfig as exc:
            raise InvalidConfig(f"sparkMaster, sparkDriverMemory or sparkSettings: {exc}") from exc

    @property
    def broker_security(self) -> ClientSecurity:
        """The security settings for the broker client, which rejects TLS settings that only other parts use."""
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
        """Return how Spark functions run on the worker."""
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
        """The host name that the worker advertises."""
        if self.advertised_host:
            return self.advertised_host
        return socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 (compared with, not bound to)

    @property
    def topics(self) -> tuple[str, ...]:
        """The local names of all internal topics except those that hold package contents."""
        own = self.locks_topic, self.packages_topic
        return self.metadata_topic, self.assignments_topic, self.coordination_topic, *own

    def topic(self, local: str) -> str:
        """Return the full name of an internal topic."""
        return f"persistent://{self.functions_namespace}/{local}"
