"""Sizes in flags: a number of bytes, or a number with a unit."""

from __future__ import annotations

import re

KIB, MIB = 1024, 1024**2
_UNITS = {"": 1, "k": KIB, "m": MIB, "g": 1024**3, "t": 1024**4}
_SIZE = re.compile(r"(-?[0-9]+) ?(?:([kmgt]?)b?|([kmgt])ib)", re.IGNORECASE)
EXPECTED = "a whole number of bytes, or one with K, M, G or T, such as 64M, 64MB or 64MiB"


def parse_size(text: str, bare_unit: int = 1) -> int:
    """Parse a size such as ``100000``, ``64M``, ``64MB`` or ``64 MiB``, case-insensitively.

    Units are powers of 1024, as in Pulsar's tools. -1 means no limit, if a setting allows it. Other negative numbers
    are invalid.

    Args:
        text: the size.
        bare_unit: unit of a number without a unit, in bytes.

    Raises:
        ValueError: the string is not a valid size.
    """
    found = _SIZE.fullmatch(text)
    if found is None or (found[1].startswith("-") and text != "-1"):
        raise ValueError(f"expected {EXPECTED}")
    if text == "-1":
        return -1
    is_bare = found[1] == text
    return int(found[1]) * (bare_unit if is_bare else _UNITS[(found[2] or found[3] or "").lower()])
