"""Shared parts of the ``kafka`` source and sink: connection settings and topic metadata."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from logging import Logger
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..api.connector import Retry
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

BASE64_NAMES = "__kafka_base64"
"""Property that lists, separated by commas, the properties encoded as base64 because they are not valid UTF-8."""
BASE64_KEY = "__kafka_base64_key"
"""Property of a message whose key is base64-encoded; its value is ``true``."""
ASK_S = 3.0
"""Timeout of a metadata request to Kafka, in seconds."""

_AWAY_S = 1.0
"""How long a client may have no reachable broker, in seconds."""
_JAAS = re.compile(r"\s*[\w.]*?(\w+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL)
_NAMES_IN_JAVA = {"fetch.max.wait.ms": "fetch.wait.max.ms"}
_NOT_HERE = {
    "sasl.jaas.config": "set saslJaasConfig instead, which is stored as a secret",
    "sasl.password": "set saslPassword instead, which is stored as a secret",
    "sasl.mechanism": "set saslMechanism instead",
    "sasl.mechanisms": "set saslMechanism instead",
    "security.protocol": "set securityProtocol instead",
    "plugin.library.paths": "loading code into the instance is not allowed",
    "enable.auto.offset.store": "the connector stores only offsets of durable records",
    "partition.assignment.strategy": "the connector always uses range and roundrobin",
    "group.protocol": "the connector always uses a classic group",
    "transactional.id": "transactions are not supported",
    "delivery.report.only.error": "the connector sets this property",
}


@dataclass(kw_only=True)
class KafkaConfig:
    """Connection settings of the ``kafka`` connectors."""

    bootstrap_servers: str = option("Comma-separated bootstrap brokers, host:port.")
    topic: str = option("Kafka topic, which must exist.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = option(
        "Security protocol of the connections.", default="PLAINTEXT"
    )
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = option(
        "SASL mechanism; empty for PLAIN.", default=""
    )
    sasl_jaas_config: str = option(
        "User name and password in Kafka's format: …LoginModule required username=\"u\" password=\"p\";",
        default="",
        secret=True,
    )  # fmt: skip
    sasl_username: str = option("User name; alternative to saslJaasConfig.", default="")
    sasl_password: str = option("Password of the user; alternative to saslJaasConfig.", default="", secret=True)
    ssl_enabled_protocols: str = option(
        "Not supported; must be empty. The newest TLS version that both sides support is used.", default=""
    )
    ssl_endpoint_identification_algorithm: str = option(
        "https: verify that the broker's certificate matches its host name; empty: no host name verification.",
        default="https",
    )
    ssl_truststore_location: str = option(
        "PEM file with trusted CA certificates; empty for the system certificates.", default=""
    )
    ssl_truststore_password: str = option(
        "Not supported; must be empty. PEM files have no password.", default="", secret=True
    )

    def check_connection(self) -> None:
        """Validate the connection settings.

        Raises:
            InvalidConfig: a setting is not supported. The message contains the option name and the alternative.
        """
        for server in filter(None, map(str.strip, self.bootstrap_servers.split(","))):
            host, colon, port = server.rpartition("://")[2].rpartition(":")
            if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
                raise InvalidConfig(f"invalid bootstrapServers entry {server!r}: expected host:port")
        if not self.bootstrap_servers.strip(" ,"):
            raise InvalidConfig("bootstrapServers is required, as host:port[,host:port…]")
        if not re.fullmatch(r"[\w.-]{1,249}", self.topic, re.ASCII) or self.topic in (".", ".."):
            raise InvalidConfig(
                f"invalid topic {self.topic[:60]!r}: expected up to 249 letters, digits, dots, underscores and hyphens"
            )
        if self.ssl_enabled_protocols:
            raise InvalidConfig(
                "sslEnabledProtocols is not supported, as the newest common TLS version is always "
                "used: remove this option"
            )
        if self.ssl_endpoint_identification_algorithm not in ("", "https"):
            raise InvalidConfig("invalid sslEndpointIdentificationAlgorithm: expected https or an empty string")
        if re.search(r"\.(jks|p12|pfx|keystore|truststore)$", self.ssl_truststore_location, re.IGNORECASE):
            raise InvalidConfig(
                f"sslTruststoreLocation {self.ssl_truststore_location!r} is a Java keystore: convert it to PEM: "
                f"keytool -exportcert -rfc -keystore STORE -alias NAME -file ca.pem"
            )
        if self.ssl_truststore_password:
            raise InvalidConfig(
                "sslTruststorePassword is not supported, as PEM files have no password: remove this option"
            )
        user, _ = self.login()
        if user and not self.security_protocol.startswith("SASL"):
            raise InvalidConfig(
                f"securityProtocol {self.security_protocol} does not support a user: set securityProtocol to SASL_SSL"
            )
        if self.security_protocol.startswith("SASL") and not user:
            raise InvalidConfig(f"securityProtocol {self.security_protocol} requires a user: set saslJaasConfig")

    def login(self) -> tuple[str, str]:
        """Return user name and password, or empty strings.

        Raises:
            InvalidConfig: they are set twice, or the login module is unknown.
        """
        if not self.sasl_jaas_config:
            return self.sasl_username, self.sasl_password
        if self.sasl_username or self.sasl_password:
            raise InvalidConfig("saslJaasConfig excludes saslUsername and saslPassword: set only one of them")
        remedy = "set saslUsername and saslPassword instead"
        if not (found := _JAAS.fullmatch(self.sasl_jaas_config)):
            raise InvalidConfig(
                f'invalid saslJaasConfig: expected …LoginModule required username="…" password="…"; {remedy}'
            )
        module, options = found.groups()
        if module not in ("PlainLoginModule", "ScramLoginModule"):
            known = "PlainLoginModule or ScramLoginModule"
            raise InvalidConfig(f"saslJaasConfig: unknown login module {module!r}: expected {known}")
        if (module == "ScramLoginModule") != self.sasl_mechanism.startswith("SCRAM"):
            fitting = "PLAIN" if module == "PlainLoginModule" else "SCRAM-SHA-256 or SCRAM-SHA-512"
            raise InvalidConfig(f"saslMechanism does not match {module} in saslJaasConfig: expected {fitting}")
        try:
            given = dict(part.split("=", 1) for part in shlex.split(options))
            return given["username"], given["password"]
        except (ValueError, KeyError):
            raise InvalidConfig(f"saslJaasConfig has no username and password: {remedy}") from None

    def connection(self) -> dict[str, Any]:
        """Return the settings under librdkafka's names."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 2,  # otherwise each connection attempt is logged; `Connection` keeps the last error
        }
        user, password = self.login()
        if self.security_protocol.startswith("SASL"):
            settings["sasl.mechanism"] = self.sasl_mechanism or "PLAIN"
            settings |= {"sasl.username": user, "sasl.password": password}
        if self.security_protocol.endswith("SSL"):
            settings["ssl.endpoint.identification.algorithm"] = self.ssl_endpoint_identification_algorithm or "none"
            if self.ssl_truststore_location:
                settings["ssl.ca.location"] = self.ssl_truststore_location
        return settings


def library() -> Any:
    """Return the library. Raises InvalidConfig if it is not installed."""
    return need("kafka", "confluent_kafka")


def properties_of(key: str, given: Mapping[str, Any], refused: Mapping[str, str]) -> dict[str, str]:
    """Convert client properties to librdkafka's format.

    Args:
        key: name of the option that contains the properties.
        given: value of that option.
        refused: properties that have a separate option or cannot be set, each with the alternative.

    Raises:
        InvalidConfig: a property cannot be set.
    """
    settings = {}
    for name, value in given.items():
        if reason := refused.get(name) or _NOT_HERE.get(name):
            raise InvalidConfig(f"{key}: {name}: {reason}")
        if re.search(r"password|secret|\.pem$", name):
            raise InvalidConfig(f"{key}: {name} would be shown in clear text: use a protected file without a password")
        if name.endswith("_cb") or name in ("error_cb", "on_commit", "logger"):
            raise InvalidConfig(f"{key}: {name} is a callback and cannot be set")
        settings[_NAMES_IN_JAVA.get(name, name)] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def check_properties(key: str, make: str, settings: Mapping[str, str]) -> None:
    """Reject properties that the library does not support, by creating a client without connecting it.

    Nothing is checked if the library is not installed. File paths are not checked.

    Raises:
        InvalidConfig: a property is invalid. The message contains the library's reason.
    """
    try:
        kafka = library()
    except InvalidConfig:
        return
    given = {name: value for name, value in settings.items() if "location" not in name}
    client_type = getattr(kafka, make)
    try:
        client = client_type({"log_level": 0, **given, **({"group.id": "check"} if make == "Consumer" else {})})
    except (kafka.KafkaException, TypeError, ValueError) as error:
        raise InvalidConfig(f"{key}: {cause_of(error)}; see librdkafka's CONFIGURATION.md for the names") from error
    if make == "Consumer":
        client.close()


def cause_of(error: BaseException) -> str:
    """Return the error message in one line."""
    first = error.args[0] if error.args else error
    text = first.str() if hasattr(first, "str") else str(first)
    return " ".join(str(text).split())


class Topic(NamedTuple):
    """Metadata of a Kafka topic.

    Attributes:
        id: topic ID, which changes if the topic is recreated; empty if Kafka does not report it.
        partitions: number of partitions.
        is_compacted: whether the topic is compacted.
        largest: maximum bytes of a record batch; 0 if unknown.
    """

    id: str
    partitions: int
    is_compacted: bool
    largest: int


class Connection:
    """Connection errors of a client that reconnects automatically.

    Attributes:
        trouble: the last error since `forget`, or an empty string.
        is_away: whether no broker is reachable.
    """

    def __init__(self, config: KafkaConfig, logger: Logger) -> None:
        """Create an error log for clients whose ``error_cb`` is `failed`."""
        self.trouble = ""
        self.is_away = False
        self._config = config
        self._log = logger

    def failed(self, error: KafkaError) -> None:
        """Save an error; called by the client on the thread that polls it."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self.is_away = True
            self.trouble = self.trouble or cause_of(Exception(error))
        else:
            self.trouble = cause_of(Exception(error))

    def forget(self) -> None:
        """Clear the saved error."""
        self.trouble = ""
        self.is_away = False

    def away(self, error: BaseException | str) -> Retry:
        """Return the error to raise if Kafka is unavailable."""
        text = error if isinstance(error, str) else cause_of(error)
        known = f" ({self.trouble})" if self.trouble and self.trouble not in text else ""
        return Retry(f"Kafka at {self._config.bootstrap_servers}: {text}{known}")

    def describe(self, kafka: Any) -> Topic:
        """Request the topic's metadata.

        Raises:
            Retry: Kafka is unavailable or rejects the login, or the topic does not exist.
            InvalidConfig: the client settings are invalid.
        """
        admin = need("kafka", "confluent_kafka.admin")
        settings = {**self._config.connection(), "error_cb": self.failed}
        name = self._config.topic
        try:
            client = admin.AdminClient(settings)
        except kafka.KafkaException as error:
            raise InvalidConfig(cause_of(error)) from error
        (asked,) = client.describe_topics(kafka.TopicCollection([name]), request_timeout=ASK_S).values()
        try:
            found = self._answer(client, asked)
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                servers = self._config.bootstrap_servers
                raise Retry(
                    f"topic {name!r} does not exist in Kafka at {servers}: create it with kafka-topics.sh --create "
                    f"--topic {name}"
                    f" --bootstrap-server {servers}"
                ) from error
            raise self.away(error) from error
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, name)
        (asked,) = client.describe_configs([resource], request_timeout=ASK_S).values()
        try:
            entries = {key: entry.value or "" for key, entry in self._answer(client, asked).items()}
        except kafka.KafkaException as error:  # the client may lack permission to read the topic's configuration
            self._log.info("cannot read the configuration of Kafka topic %s: %s", name, cause_of(error))
            entries = {}
        topic_id = "" if found.topic_id is None else str(found.topic_id)
        compacted = "compact" in entries.get("cleanup.policy", "")
        return Topic(topic_id, len(found.partitions), compacted, int(entries.get("max.message.bytes") or 0))

    def _answer(self, client: Any, asked: Future[Any]) -> Any:
        began_s = time.monotonic()
        while not asked.done():
            client.poll(0.05)  # calls `failed`
            taken_s = time.monotonic() - began_s
            if taken_s > 2 * ASK_S or (self.is_away and taken_s > _AWAY_S):
                raise self.away("no broker is reachable" if self.is_away else f"no response within {2 * ASK_S:g} s")
        return asked.result()
