"""The topics of a namespace, all of them or those of one bundle."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ...web.answers import Refused
from ...wire.topic_name import DOMAINS, TopicName, parse_topic_name
from ..policies.policies import bundle_of
from .call import Call

_BUNDLE = re.compile(r"0x[0-9a-f]{8}_0x[0-9a-f]{8}")


def is_system_topic(topic: TopicName) -> bool:
    """Return whether a topic is one that Pulsar keeps for itself and hides from lists."""
    return topic.local.startswith("__")


def topics_of(call: Call, namespace: str, domains: Sequence[str], include_system: bool) -> list[TopicName]:
    """Return the topics of a namespace, partitions one by one."""
    topics = (parse_topic_name(name) for name in call.broker.topic_names(namespace))
    return [topic for topic in topics if topic.domain in domains and (include_system or not is_system_topic(topic))]


def boundaries(call: Call, namespace: str) -> list[str]:
    """Return where the bundles of a namespace begin and end."""
    found: list[str] = call.namespaces.policies(namespace)["bundles"]["boundaries"]
    return found


def topics_in_bundle(call: Call, namespace: str, bundle: str) -> list[TopicName]:
    """Return the topics of a namespace that fall into a bundle, which is checked as `check_bundle` does."""
    check_bundle(call, namespace, bundle)
    topics = topics_of(call, namespace, DOMAINS, include_system=False)
    limits = boundaries(call, namespace)
    return [topic for topic in topics if bundle_of(limits, str(topic)) == bundle]


def check_bundle(call: Call, namespace: str, bundle: str) -> str:
    """Return ``bundle`` if it is one of the namespace's, else refuse as Pulsar does."""
    if not _BUNDLE.fullmatch(bundle):
        raise Refused(412, f"Invalid bundle range: {bundle}")
    low, high = bundle.split("_")
    upper = dict(itertools.pairwise(boundaries(call, namespace))).get(low)
    if upper is None:
        raise Refused(412, f"Invalid lower boundary for bundle {namespace}/{bundle}")
    if upper != high:
        expected = f"Expected upper boundary of {namespace}/{low}_{upper}"
        raise Refused(412, f"Invalid upper boundary for bundle {namespace}/{bundle}. {expected}")
    return bundle
