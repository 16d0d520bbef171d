"""Validation of cursor names and properties, called before a cursor is created or deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....errors import NotAllowed

INTERNAL = ("pulsar.repl", "pulsar.dedup", "__compaction")
"""Name prefixes of the broker's own cursors."""
MAX_NAME_BYTES = 1024
"""Maximum length of a subscription or consumer name."""
MAX_PROPERTIES = 1000
"""Maximum number of properties of a new subscription, or of a producer."""
MAX_PROPERTIES_BYTES = 16 * 1024
"""Maximum total size of the names and values of these properties, in UTF-8."""


def is_internal(name: str) -> bool:
    """Return whether a cursor of that name is the broker's own."""
    return name.startswith(INTERNAL)


def refuse_internal(name: str) -> None:
    """Raise if a cursor of that name is the broker's own.

    Raises:
        NotAllowed: the name is reserved.
    """
    if is_internal(name):
        raise NotAllowed(f"{name} is the broker's own cursor; names that begin with {', '.join(INTERNAL)} are reserved")


def check_name(what: str, name: object) -> None:
    """Raise if a name is not valid text, or too long.

    Raises:
        NotAllowed: the name is not UTF-8 or exceeds `MAX_NAME_BYTES`.
    """
    check_text(what, name)
    size = len(str(name).encode())
    if size > MAX_NAME_BYTES:
        raise NotAllowed(f"{what} of {size} bytes exceeds {MAX_NAME_BYTES}; choose a shorter one")


def check_properties(what: str, properties: Mapping[str, str]) -> None:
    """Raise if a name or a value of ``properties`` is not valid text.

    Raises:
        NotAllowed: a name or value is not UTF-8.
    """
    for name, value in properties.items():
        check_text(f"the name of {what}", name)
        check_text(f"the value of {what} {name}", value)


def check_size(
    what: str, properties: Iterable[tuple[str, str]], max_bytes: int = MAX_PROPERTIES_BYTES, setting: str = ""
) -> None:
    """Raise if there are too many properties, or if they are too long in total.

    Args:
        what: the plural noun for them in the error.
        properties: names and values; not read beyond the limit.
        max_bytes: the limit for all names and values, in UTF-8.
        setting: the name of the setting that the limit comes from.

    Raises:
        NotAllowed: a limit is exceeded.
    """
    size = 0
    for count, (name, value) in enumerate(properties, 1):
        if count > MAX_PROPERTIES:
            raise NotAllowed(f"more than {MAX_PROPERTIES} {what}: use fewer")
        size += len(name.encode()) + len(value.encode())
        if size > max_bytes:
            limit = f"{max_bytes} bytes" + (f" ({setting})" if setting else "")
            raise NotAllowed(f"names and values of {what} exceed {limit}: use fewer or shorter ones")


def check_text(what: str, text: object) -> None:
    """Raise unless ``text`` can be encoded as UTF-8; an invalid protobuf string field arrives as bytes.

    Raises:
        NotAllowed: the text is not UTF-8.
    """
    try:
        if isinstance(text, str):
            text.encode()
            return
    except UnicodeEncodeError:
        pass
    raise NotAllowed(f"{what} is not UTF-8: {text!a:.100}")
