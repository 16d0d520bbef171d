"""Orders as JSON documents of an exact size, for benchmarks of functions that take and return dicts; pure.

An order has about one item per 85 bytes, as the cost of decoding depends on the number of values, and a note as
padding.
"""

from __future__ import annotations

import json
import random
import string

SMALL, LARGE = "JSON of 100 B", "JSON of 1024 B"
SIZES_BYTES = {SMALL: 100, LARGE: 1024}
"""Sizes by shape name."""
ITEM_BYTES = 85
USERS = 1000


def document(number: int, rng: random.Random, size_bytes: int) -> bytes:
    """Return an order of exactly `size_bytes` bytes."""
    order = {
        "id": number,
        "user": f"u{rng.randrange(USERS):03d}",
        "items": [_item(rng) for _ in range(max(1, size_bytes // ITEM_BYTES))],
        "note": "",
    }
    missing = size_bytes - len(_encoded(order))
    order["note"] = "".join(rng.choices(string.ascii_lowercase, k=missing))
    return _encoded(order)


def _item(rng: random.Random) -> dict[str, object]:
    sku = "".join(rng.choices(string.ascii_uppercase, k=4))
    return {"sku": sku, "price": rng.randrange(100, 1000), "count": rng.randrange(1, 10)}


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
