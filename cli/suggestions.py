"""Suggestions of similar existing names when a name is not found on the server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from .failure import Failure
from .nearest import NEAR_NAME, nearest

_COMPONENT = re.compile(r"(?P<list>/admin/v3/(?:functions|sources|sinks)/[^/]+/[^/]+)/(?P<name>[^/?]+)")
_TOPIC = re.compile(r"(?P<list>/admin/v2/(?:non-)?persistent/[^/]+/[^/]+)/(?P<name>[^/?]+)")
_NAMESPACE = re.compile(r"(?P<list>/admin/v2/namespaces/[^/]+)/(?P<name>[^/?]+)")
_TENANT = re.compile(r"(?P<list>/admin/v2/tenants)/(?P<name>[^/?]+)")
_LISTS = (_COMPONENT, _TOPIC, _NAMESPACE, _TENANT)
"""Patterns of paths that contain a name, and the paths that list all objects of that kind."""
_PARTITION = re.compile(r"-partition-\d+$")


def with_suggestion(failure: Failure, path: str, get: Callable[[str], Any]) -> Failure:
    """Add the most similar existing name to the failure of a request for a missing object.

    Args:
        failure: failure of the request.
        path: path of the request, without query.
        get: requests another path and returns its JSON.
    """
    if failure.status != 404:
        return failure
    found = next((match for pattern in _LISTS if (match := pattern.match(path))), None)
    if found is None:
        return failure
    name = unquote(found["name"])
    try:
        listed = [*get(found["list"]), *(get(f"{found['list']}/partitioned") if found.re is _TOPIC else ())]
    except (Failure, TypeError):  # a failing suggestion must not hide the original error
        return failure
    known = {_PARTITION.sub("", str(one).rpartition("/")[2]) for one in listed}
    known = {one for one in known if not one.startswith("__")}
    if name in known:  # the object exists, but something else, such as a subscription, is missing
        return failure
    return Failure(failure.message + nearest(name, known, NEAR_NAME).rstrip("?"), failure.status)
