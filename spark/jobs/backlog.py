"""How much a function has not processed yet: the backlog of its subscriptions, as the broker counts it.

That is in entries: a batch counts once, however many messages it holds.
"""

from __future__ import annotations

import logging
from typing import Any

from ...errors import MagnetarError
from ...instance.endpoint_settings import subscription_of
from ...instance.spec import InstanceSpec
from ...wire.topic_name import parse_topic_name
from ..source.rest import ask

UNKNOWN = -1
_log = logging.getLogger(__name__)


def backlog_entries(spec: InstanceSpec) -> int:
    """Return the number of entries that a function's subscriptions have not acknowledged. Blocking.

    It is `UNKNOWN` where the broker has no REST interface that can be reached, or answers something else.
    """
    subscription = subscription_of(spec)
    total = 0
    try:
        for topic in spec.details.source.inputSpecs:
            path = f"/admin/v2/{parse_topic_name(topic).rest_path}"
            partitions = ask(spec.admin_url, "GET", f"{path}/partitions")["partitions"]
            stats: Any = ask(spec.admin_url, "GET", f"{path}/{'partitioned-stats' if partitions else 'stats'}")
            total += int(stats["subscriptions"].get(subscription, {}).get("msgBacklog", 0))
    except (MagnetarError, ValueError, LookupError, TypeError) as error:
        _log.debug("backlog of %s: %r", spec.key, error)
        return UNKNOWN
    return total
