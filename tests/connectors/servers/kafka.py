"""Apache Kafka: one node, broker and controller in one process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from tests.connectors.servers import maven
from tests.connectors.servers.base import RealServer

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient  # it may be missing where tests are only collected

VERSION = "4.1.2"
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.23.1",
    "org.apache.logging.log4j:log4j-core:2.23.1",
)
TIMEOUT_S = 30.0
USER, PASSWORD = "alice", "open sesame"


class KafkaServer(RealServer):
    """Kafka with and without users; confirmed records are on disk and survive `kill`."""

    binary = "java"
    package = "apt-get install openjdk-17-jre-headless"
    ports_needed = 3
    heap: ClassVar[str] = "384m"

    @classmethod
    def require(cls) -> None:
        """Override `RealServer.require`."""
        super().require()
        maven.require()

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_servers(self) -> str:
        """Address for clients that authenticate as `USER` with `PASSWORD` by PLAIN."""
        return f"127.0.0.1:{self.ports[2]}"

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        port, controller, sasl = self.ports
        clients = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}"
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": clients,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f'{login} required user_{USER}="{PASSWORD}";',
            "log.dirs": str(self.directory / "data"),
            "log.flush.interval.messages": "1",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # One that was killed may not come back before its session is over.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "300",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **{
                f"{part}.replication.factor": "1"
                for part in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
            },
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        config, logging = self.directory / "server.properties", self.directory / "log4j2.xml"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        logging.write_text(
            '<Configuration><Appenders><Console name="C"><PatternLayout pattern="%d %p %c{1} - %m%n"/></Console>'
            '</Appenders><Loggers><Root level="warn"><AppenderRef ref="C"/></Root></Loggers></Configuration>'
        )
        self.own(config, logging)
        self.run(
            *self._java("256m"), "kafka.tools.StorageTool", "format", "--config", str(config), "--cluster-id",
            "MkU3OEVBNTcwNTJENDM2Qg",
        )  # fmt: skip

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [*self._java(self.heap), "kafka.Kafka", str(self.directory / "server.properties")]

    def _java(self, heap: str) -> list[str]:
        jars = maven.jars("kafka", ARTIFACTS)
        log = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", log, "-cp", f"{jars}/*"]

    def environment(self) -> Mapping[str, str]:
        """Override `RealServer.environment`."""
        return {"LOG_DIR": str(self.directory)}

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        return bool(self.admin().list_topics(timeout=1.0).brokers)

    def create_topic(self, partitions: int = 1, **settings: str) -> str:
        """Create a topic with a unique name and return the name."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.create_named(name, partitions, **settings)
        return name

    def create_named(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic; ``_`` in setting names stands for a dot."""
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in settings.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        client = self.admin()  # what it was asked ends with it
        client.create_topics([new], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        client = self.admin()
        client.delete_topics([name], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)

    def admin(self) -> AdminClient:
        """Return an admin client."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
