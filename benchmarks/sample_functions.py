"""Functions that a worker gets this very file of, and that the loops beside it call: both do the same.

It imports nothing but the standard library, as a worker takes it alone.
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
    """Take a while, as a question to another service does."""
    await asyncio.sleep(PAUSE_S)
    return text + "!"
