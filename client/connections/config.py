"""Client settings, which concern connections; the rules of `client.config` also apply here."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ...security.credentials.authentication import Authentication
from ...security.credentials.client_security import ClientSecurity
from ..checks import TEXT_BYTES_MAX, check_least, check_range, check_text


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Settings of a client.

    Attributes:
        operation_timeout_s: timeout of one request, and of creating a producer or consumer including retries.
        connection_timeout_s: timeout of connecting, including the handshake.
        keep_alive_s: interval between PINGs. A connection that stays silent for another interval is closed.
        backoff_initial_ms: first wait before a retry; doubles with each retry.
        backoff_max_ms: longest wait before a retry.
        max_redirects: how many times a lookup may be redirected to another broker.
        listener_name: advertised listener of the brokers to connect to (`advertisedListeners`); empty for the default.
        description: added to the client version that brokers show.
        memory_limit_bytes: total size limit of the pending messages of all producers; 0 means only the limits of each
            producer apply. At the limit, ``block_if_queue_full`` of each producer applies.
        stats_interval_s: interval at which producers and consumers log their statistics; 0 disables statistics.
        message_listener_threads: number of threads on which the blocking client calls message listeners.
        authentication: the client's credentials, for example `AuthenticationToken`.
        auth_plugin: authentication plugin by name, instead of ``authentication``: ``token``, ``basic``, ``tls``,
            ``oauth2``, the class name of a Pulsar plugin, or ``module:Class``.
        auth_params: parameters of the plugin, as in Pulsar's ``client.conf``; never logged.
        tls_trust_certs_file: trusted certificate authorities (PEM); empty for the system's.
        tls_certificate_file: client certificate (PEM), for brokers that require one.
        tls_key_file: private key of the client certificate (PEM).
        tls_allow_insecure_connection: accept any broker certificate; for tests only.
        tls_hostname_verification: require that the broker certificate matches the host name. On by default, unlike in
            Pulsar's clients.
    """

    operation_timeout_s: float = 30.0
    connection_timeout_s: float = 10.0
    keep_alive_s: float = 30.0
    backoff_initial_ms: int = 100
    backoff_max_ms: int = 60_000
    max_redirects: int = 20
    listener_name: str = ""
    description: str = ""
    memory_limit_bytes: int = 0
    stats_interval_s: float = 0.0
    message_listener_threads: int = 1
    authentication: Authentication | None = None
    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)
    tls_trust_certs_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_allow_insecure_connection: bool = False
    tls_hostname_verification: bool = True

    def __post_init__(self) -> None:
        check_least("operation_timeout_s", self.operation_timeout_s, 0.001)
        check_least("connection_timeout_s", self.connection_timeout_s, 0.001)
        check_least("keep_alive_s", self.keep_alive_s, 0.001)
        check_least("backoff_initial_ms", self.backoff_initial_ms, 1)
        check_least("backoff_max_ms", self.backoff_max_ms, self.backoff_initial_ms)
        check_least("max_redirects", self.max_redirects, 0)
        check_text("listener_name", self.listener_name, TEXT_BYTES_MAX)
        check_text("description", self.description, TEXT_BYTES_MAX)
        check_least("memory_limit_bytes", self.memory_limit_bytes, 0)
        check_least("stats_interval_s", self.stats_interval_s, 0)
        check_range("message_listener_threads", self.message_listener_threads, 1, 1024)
        _ = self.security  # validates the security settings

    @property
    def security(self) -> ClientSecurity:
        """The authentication and TLS settings as plain values; without ``authentication``."""
        return ClientSecurity(**{one.name: getattr(self, one.name) for one in fields(ClientSecurity)})
