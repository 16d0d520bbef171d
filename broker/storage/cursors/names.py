"""Validation of cursor names and properties before a cursor is created or deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....errors import NotAllowed

INTERNAL = ("pulsar.repl", "pulsar.dedup", "__compaction")
"""Name prefixes of internal cursors."""
MAX_NAME_BYTES = 1024
"""Maximum length of subscription and consumer names, in UTF-8."""
MAX_PROPERTIES = 1000
"""Maximum number of properties of a subscription, consumer or producer."""
MAX_PROPERTIES_BYTES = 16 * 1024
"""Default limit on the total size of property names and values, in UTF-8."""


def is_internal(name: str) -> bool:
    """Return whether the name belongs to an internal cursor of the broker."""
    return name.startswith(INTERNAL)


def refuse_internal(name: str) -> None:
    """Raise if a name is reserved for internal cursors of the broker.

    Raises:
        NotAllowed: the name is reserved.
    """
    if is_internal(name):
        raise NotAllowed(
            f"invalid subscription name {name!r}: names that start with {', '.join(INTERNAL)} are reserved"
        )


def check_name(what: str, name: object) -> None:
    """Raise if a name is not valid UTF-8 or is too long.

    Raises:
        NotAllowed: the name is not valid UTF-8 or exceeds `MAX_NAME_BYTES`.
    """
    check_text(what, name)
    size = len(str(name).encode())
    if size > MAX_NAME_BYTES:
        raise NotAllowed(f"{what} of {size} bytes exceeds {MAX_NAME_BYTES} bytes: use a shorter name")


def check_properties(what: str, properties: Mapping[str, str]) -> None:
    """Raise if a property name or value is not valid UTF-8.

    Raises:
        NotAllowed: a name or value is not valid UTF-8.
    """
    for name, value in properties.items():
        check_text(f"{what} name", name)
        check_text(f"value of {what} {name!r}", value)


def check_size(
    what: str, properties: Iterable[tuple[str, str]], max_bytes: int = MAX_PROPERTIES_BYTES, setting: str = ""
) -> None:
    """Raise if there are too many properties or their total size is too large.

    Args:
        what: plural noun that names the properties in the error message.
        properties: names and values; the iterable is not read beyond the limit.
        max_bytes: maximum total size of names and values, in UTF-8.
        setting: name of the setting that determines ``max_bytes``, for the error message.

    Raises:
        NotAllowed: a limit is exceeded.
    """
    size = 0
    for count, (name, value) in enumerate(properties, 1):
        if count > MAX_PROPERTIES:
            raise NotAllowed(f"more than {MAX_PROPERTIES} {what}: use fewer properties")
        size += len(name.encode()) + len(value.encode())
        if size > max_bytes:
            limit = f"{max_bytes} bytes" + (f" ({setting})" if setting else "")
            raise NotAllowed(f"names and values of {what} exceed {limit}: use fewer or shorter properties")


def check_text(what: str, text: object) -> None:
    """Raise unless ``text`` is a string that can be encoded as UTF-8; invalid protobuf strings are parsed as bytes.

    Raises:
        NotAllowed: the text is not valid UTF-8.
    """
    try:
        if isinstance(text, str):
            text.encode()
            return
    except UnicodeEncodeError:
        pass
    raise NotAllowed(f"{what} is not valid UTF-8: {text!a:.100}")
