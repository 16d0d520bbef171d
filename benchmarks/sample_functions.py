"""Functions that are deployed to a worker as this file, and called by the equivalent loops.

It only imports the standard library, as it is deployed alone.
"""

from __future__ import annotations

import asyncio

PAUSE_S = 0.1
WHY = "this order has no price"


def add_total(order: dict) -> dict:  # type: ignore[type-arg]  # as a user writes it
    """Return an order with its total."""
    order["total"] = sum(item["price"] * item["count"] for item in order["items"])
    return order


def refuse(text: str) -> str:
    """Fail for every message."""
    raise ValueError(f"{WHY}: {text[:20]}")


async def wait(text: str) -> str:
    """Wait, like a request to another service."""
    await asyncio.sleep(PAUSE_S)
    return text + "!"
