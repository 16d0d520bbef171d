"""Warns about writing to a topic without subscriptions and retention, whose messages are soon deleted.

The binary protocol provides neither, so this module queries the REST interface if its address is known.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from ...errors import MagnetarError, RequestRefused
from ...security.client_credentials import ClientCredentials
from ...wire.topic_name import TopicName, parse_topic_name
from .connection import ask
from .options import WriteOptions

log = logging.getLogger(__name__)


def warn_unless_kept(options: WriteOptions) -> bool:
    """Log a warning if the topic of a write does not retain messages, and return whether a warning was logged.

    Nothing is logged if this cannot be determined: without ``admin.url``, for rows with a topic column, or if the
    request fails. The rows have been written in any case.
    """
    if options.admin_url is None or options.topic is None:
        return False
    url, credentials = options.admin_url, ClientCredentials(options.security)
    name = parse_topic_name(options.topic)

    def get(path: str) -> Any:
        return ask(url, "GET", f"/admin/v2/{path}", credentials=credentials)

    try:
        if not name.is_persistent or _has_subscription(get, name) or _has_retention(get, name):
            return False
    except MagnetarError as error:
        log.debug("cannot determine whether messages of %s are retained: %s", name, error)
        return False
    log.warning(
        "messages written to %s will soon be deleted: the topic has no subscription and %s has no retention; run"
        " magnetar topics create-subscription %s -s NAME -m earliest or magnetar namespaces set-retention %s -t 7d -s"
        " -1",
        *(name, name.namespace_name, name.base, name.namespace_name),
    )
    return True


def _has_subscription(get: Callable[[str], Any], name: TopicName) -> bool:
    if name.partition < 0:
        with contextlib.suppress(RequestRefused):  # not partitioned
            return bool(get(f"{name.rest_path}/partitioned-stats").get("subscriptions"))
    return bool(get(f"{name.rest_path}/stats").get("subscriptions"))


def _has_retention(get: Callable[[str], Any], name: TopicName) -> bool:
    try:
        retention = get(f"{name.base.rest_path}/retention?applied=true")
    except RequestRefused:  # the broker does not support topic policies
        retention = get(f"namespaces/{name.namespace_name}/retention")
    return any((retention or {}).get(limit) for limit in ("retentionTimeInMinutes", "retentionSizeInMB"))
