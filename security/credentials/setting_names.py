"""The settings of `ClientSecurity` under the names that an option or a key of a configuration has for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...errors import InvalidConfig


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the attributes of `ClientSecurity` called as ``names`` say."""
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], text)


@contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """Have what is refused inside named as whoever gave it knows it.

    Args:
        names: of the attributes of `ClientSecurity` -> what its user calls them.

    Raises:
        InvalidConfig: with those names.
    """
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(renamed(str(error), names)) from error
