"""Translates `ClientSecurity` attributes in errors to the names of options or configuration keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...errors import InvalidConfig


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Replace attribute names of `ClientSecurity` in a message according to ``names``."""
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], text)


@contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """Context in which `InvalidConfig` errors use the names in the user's configuration.

    Args:
        names: attribute names of `ClientSecurity` -> names in the user's configuration.

    Raises:
        InvalidConfig: raised in the context, with names replaced.
    """
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(renamed(str(error), names)) from error
