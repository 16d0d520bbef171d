"""Topics that a function currently reads, including those that match its patterns."""

from __future__ import annotations

from ...instance.topic_patterns import patterns_of, takes
from ...wire.functions_pb2 import FunctionDetails
from ..cluster.broker_admin import BrokerAdmin


async def inputs_of(details: FunctionDetails, admin: BrokerAdmin) -> list[str]:
    """Return the names of a function's inputs; topics that match a pattern are listed by partition.

    Raises:
        MagnetarError: the broker did not answer.
    """
    topics = [topic for topic, given in details.source.inputSpecs.items() if not given.isRegexPattern]
    for pattern in patterns_of(details).values():
        topics += [topic for topic in await admin.topics(pattern.namespace) if takes(pattern, topic)]
    return topics
