"""The name that a user probably meant, of those that the server has, when there is nothing of the name given."""

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
"""Where a path names something, and the path that lists all of its kind."""
_PARTITION = re.compile(r"-partition-\d+$")


def with_suggestion(failure: Failure, path: str, get: Callable[[str], Any]) -> Failure:
    """Return the failure of a request for something that is not there, with the name of something like it.

    Args:
        failure: the answer to the request.
        path: of the request, without its query.
        get: returns the JSON of another path.
    """
    if failure.status != 404:
        return failure
    found = next((match for pattern in _LISTS if (match := pattern.match(path))), None)
    if found is None:
        return failure
    name = unquote(found["name"])
    try:
        listed = [*get(found["list"]), *(get(f"{found['list']}/partitioned") if found.re is _TOPIC else ())]
    except (Failure, TypeError):  # what was to be a help must not become another error
        return failure
    known = {_PARTITION.sub("", str(one).rpartition("/")[2]) for one in listed}
    known = {one for one in known if not one.startswith("__")}
    if name in known:  # something else is missing, such as a subscription
        return failure
    return Failure(failure.message + nearest(name, known, NEAR_NAME).rstrip("?"), failure.status)
