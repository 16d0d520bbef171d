"""Checks and preparations before creating a function: Spark, output deduplication and input subscriptions."""

from __future__ import annotations

import asyncio
import json
import logging

from ...client.client import AsyncClient
from ...client.config import ConsumerConfig
from ...client.deduplication import DeduplicationOff, partitions_of, require_on, switch_on
from ...config.conversion import runtime_options
from ...config.function_config import DEFAULT_CPU, SPARK
from ...errors import (
    ConnectionLost,
    InvalidConfig,
    MagnetarError,
    OperationTimeout,
    RequestRefused,
    SparkFailed,
    UnknownBrokerError,
)
from ...instance.endpoint_settings import subscription_type
from ...instance.secrets import check_isolated
from ...instance.topic_patterns import mode_of, patterns_of
from ...runtime.isolation.refused import REFUSED
from ...runtime.isolation.users import ANY_TENANT, ProcessUsers
from ...runtime.process import cpu_groups
from ...runtime.process.cpu_groups import NoCpuLimit
from ...security.client_credentials import ClientCredentials
from ...spark.session import check_ready
from ...wire.functions_pb2 import EARLIEST, EFFECTIVELY_ONCE, FunctionDetails
from ...wire.topic_name import parse_topic_name
from ..cluster.broker_admin import BrokerAdmin
from ..config import WorkerConfig
from .owner_rights import OwnerRights

SUBSCRIBE_TIMEOUT_S = 5.0
_log = logging.getLogger(__name__)


def is_spark(details: FunctionDetails) -> bool:
    """Return whether a function is a Spark function, which works in runs."""
    return runtime_options(details.customRuntimeOptions).get("runtime_env") == SPARK


def subscription_of(details: FunctionDetails) -> str:
    """Return the subscription of all inputs: the configured one, or the function's name."""
    return details.source.subscriptionName or f"{details.tenant}/{details.namespace}/{details.name}"


class Prerequisites:
    """Checks and prepares the prerequisites of functions."""

    def __init__(
        self, config: WorkerConfig, worker_id: str, client: AsyncClient, admin: BrokerAdmin, rights: OwnerRights
    ) -> None:
        self._config = config
        self._rights = rights
        self._credentials = ClientCredentials(config.client_security)
        self._worker_id = worker_id
        self._client = client
        self._admin = admin

    async def check_machine(self, details: FunctionDetails) -> None:
        """Check that this worker's machine can run a function, assuming that other machines are alike.

        Raises:
            RequestRefused: it cannot; the message contains the reason.
        """
        self.check_isolation(details)
        await self._check_spark(details)
        if details.resources.cpu not in (0.0, DEFAULT_CPU):
            try:
                await asyncio.to_thread(cpu_groups.find)
            except NoCpuLimit as exc:
                raise RequestRefused(
                    400, f"the machine of worker {self._worker_id} does not support resources.cpu: {exc}"
                ) from exc

    def check_isolation(self, details: FunctionDetails) -> None:
        """Check that a function can run as its tenant's system user, if the worker is configured so.

        Raises:
            RequestRefused: it cannot; the message contains the reason.
        """
        names = self._config.process_users
        if not names:
            return
        runtime = runtime_options(details.customRuntimeOptions).get("runtime_env")
        try:
            if runtime in REFUSED:
                raise InvalidConfig(REFUSED[runtime])
            if details.tenant not in names and ANY_TENANT not in names:
                ProcessUsers({}).of(details.tenant)
            check_isolated(json.loads(details.secretsMap or "{}"))
        except InvalidConfig as exc:
            raise RequestRefused(400, str(exc)) from exc

    async def _check_spark(self, details: FunctionDetails) -> None:
        """Check that this worker's machine can run a Spark function.

        Raises:
            RequestRefused: it cannot; the message contains the reason.
        """
        if not is_spark(details):
            return
        if not self._config.state_url:
            raise RequestRefused(
                400,
                "runtimeEnv spark requires a state store for the plans of its runs: set stateStorageServiceUrl in the"
                " worker's configuration",
            )
        try:
            await asyncio.to_thread(check_ready, self._config.spark_master, None, self._config.data_dir / "spark")
        except (InvalidConfig, SparkFailed) as exc:
            raise RequestRefused(
                400, f"runtimeEnv spark is not available on the machine of worker {self._worker_id}: {exc}"
            ) from exc

    async def prepare_output(self, details: FunctionDetails, owner: str | None = None) -> None:
        """Enable deduplication on the output topic of an EFFECTIVELY_ONCE function.

        The broker drops duplicates only on topics with deduplication enabled. This method enables it with a topic
        policy, which affects no other topic, and verifies the policy. A function is rejected if its guarantee would not
        hold, or if its owner may not set the policy and deduplication is not already enabled.

        Cancellation: the topic may have been created, and deduplication enabled.

        Args:
            details: the function.
            owner: role that the function runs as; None without authorization.

        Raises:
            RequestRefused: deduplication cannot be enabled, or a required state store is missing.
            ConnectionLost: the broker did not answer; retry.
        """
        topic, admin_url = details.sink.topic, self._config.admin_url
        if not topic or (details.processingGuarantees != EFFECTIVELY_ONCE and not is_spark(details)):
            return
        if details.componentType == FunctionDetails.SOURCE and not self._config.state_url:
            raise RequestRefused(
                400,
                "EFFECTIVELY_ONCE requires a state store for the position of a source: set stateStorageServiceUrl in"
                " the worker's configuration, or use ATLEAST_ONCE",
            )
        count = 0
        if not self._config.state_url:
            count = await asyncio.to_thread(partitions_of, admin_url, topic, self._credentials)
        if count:
            raise RequestRefused(
                400,
                f"output topic {topic} has {count} partitions, but EFFECTIVELY_ONCE requires a state store for"
                " partitioned outputs: set stateStorageServiceUrl in the worker's configuration, or use a"
                " non-partitioned output topic",
            )
        try:
            if owner is not None and not await self._rights.may_set_policy(owner, topic, "DEDUPLICATION"):
                await self._require_deduplication(topic, owner)
                return
            await asyncio.to_thread(switch_on, admin_url, topic, self._credentials)
        except DeduplicationOff as exc:
            why = "Spark functions write their outputs exactly once: " if is_spark(details) else ""
            raise RequestRefused(400, f"{why}{exc}") from exc

    async def _require_deduplication(self, topic: str, owner: str) -> None:
        try:
            await asyncio.to_thread(require_on, self._config.admin_url, topic, self._credentials)
        except DeduplicationOff as exc:
            namespace = parse_topic_name(topic).namespace_name
            raise RequestRefused(
                403,
                f"{exc}, which EFFECTIVELY_ONCE and Spark require, and {owner!r} may not change policies: ask an"
                f" administrator of the tenant to run pulsar-admin namespaces set-deduplication {namespace} --enable",
            ) from exc

    async def prepare_inputs(self, details: FunctionDetails) -> None:
        """Create a function's subscriptions if they are missing.

        In Apache Pulsar, a new subscription starts at the end of the topic once the first instance has started, so
        messages published between the response to `create` and that moment are never processed. Here, the subscription
        exists before `create` responds, so all messages published afterwards are processed.

        If the broker rejects a subscription, the function is still accepted; its instances keep retrying and report the
        reason in their status.

        Raises:
            ConnectionLost: the broker did not answer; retry.
        """
        source, name = details.source, subscription_of(details)
        config = ConsumerConfig(
            type=subscription_type(source),
            initial_position="Earliest" if source.subscriptionPosition == EARLIEST else "Latest",
            receiver_queue_size=0,
        )
        topics = [topic for topic, given in source.inputSpecs.items() if not given.isRegexPattern]
        topics += await self._matching(details)
        await asyncio.gather(*(self._open_and_close(topic, name, config) for topic in topics))

    def check_patterns(self, details: FunctionDetails) -> None:
        """Reject invalid topic patterns, and patterns that match the function's own output.

        Raises:
            RequestRefused: a pattern is invalid or matches the output.
        """
        try:
            patterns_of(details)
        except MagnetarError as exc:
            raise RequestRefused(400, str(exc)) from exc

    async def _matching(self, details: FunctionDetails) -> list[str]:
        """Return the topics that currently match the input patterns."""
        topics: list[str] = []
        for pattern in patterns_of(details).values():
            topics += await self._client.topics_of(pattern, mode_of(pattern))
        return topics

    async def _open_and_close(self, topic: str, name: str, config: ConsumerConfig) -> None:
        try:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                consumer = await self._client.subscribe(topic, name, config)
                await consumer.close()
                return
        except (ConnectionLost, OperationTimeout, TimeoutError):
            pass  # or the subscription exists, and an exclusive consumer is connected
        except MagnetarError as exc:
            _log.warning("cannot prepare subscription %s of %s: %s", name, topic, exc)
            return
        try:
            is_earliest = config.initial_position == "Earliest"
            await self._admin.create_subscription(topic, name, is_earliest=is_earliest)
        except UnknownBrokerError as exc:
            _log.warning("cannot prepare subscription %s of %s: %s", name, topic, exc)
