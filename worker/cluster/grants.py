"""Grants, requested from the broker and cached briefly."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from ...security.authorization.grants import Grants, grants_of
from .broker_admin import BrokerAdmin

KEPT_S = 2.0
"""Cache lifetime of grants in seconds, and so the maximum delay until a revocation reaches a worker."""
MAX_KEPT = 1000
"""Maximum number of namespaces in the cache. Clients choose the names, so the cache must be bounded."""


class BrokerGrants:
    """A `GrantsReader` that queries the broker's admin REST interface with the worker's superuser credentials."""

    def __init__(self, admin: BrokerAdmin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], tuple[float, Grants]] = OrderedDict()

    async def read(self, tenant: str, namespace: str, *, is_fresh: bool = False) -> Grants:
        """Return the grants of a namespace, which are at most `KEPT_S` seconds old.

        Raises:
            MagnetarError: the broker did not answer, or its response contains no grants.
        """
        key = tenant, namespace
        asked_s = self._clock()
        held = self._kept.get(key)
        if held is not None and not is_fresh and asked_s - held[0] < KEPT_S:
            return held[1]
        found = await self._ask(tenant, namespace)
        self._kept[key] = asked_s, found
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found

    async def _ask(self, tenant: str, namespace: str) -> Grants:
        if not namespace:
            return grants_of(await self._admin.tenant_info(tenant), None)
        return grants_of(*await asyncio.gather(self._admin.tenant_info(tenant), self._admin.policies(namespace)))
