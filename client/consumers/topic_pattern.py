"""Topic patterns of consumers: their namespace, matching, and the pattern sent to the broker.

A broker uses Java's regular expressions, and accepts only short ones. So it gets the application's pattern if the two
engines cannot differ, and otherwise one for the whole namespace; the response is always matched here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import InvalidConfig
from ...wire.topic_name import DOMAINS, parse_topic_name

MAX_ASKED_CHARS = 50
"""The brokers' limit (`subscriptionPatternMaxLength`)."""

_NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)
# Literals, dots, simple repetition, groups, alternatives: the same in every engine. `*+` and the like are possessive.
_SAME_EVERYWHERE = re.compile(r"(?:[-=:\w/.|()]|[.\w][*+](?![*+?]))*", re.ASCII)


class TopicPattern:
    """A pattern of topic names in one namespace.

    Attributes:
        text: the application's pattern.
        namespace: ``tenant/namespace``.
        asked: the pattern for the broker to list or watch; None if it would exceed the broker's limit.
    """

    def __init__(self, pattern: re.Pattern[str], matches: Callable[[str], bool] | None = None) -> None:
        """Create a pattern of full names, with or without a domain, or of names in ``public/default``.

        Args:
            pattern: compiled pattern.
            matches: returns whether the pattern matches a whole text; None uses Python's engine, which may take very
                long.

        Raises:
            InvalidConfig: tenant or namespace of the pattern is not a literal name.
        """
        if not isinstance(pattern.pattern, str):
            raise InvalidConfig(f"the pattern {pattern.pattern!r} is of bytes; compile one of str")
        self.text = pattern.pattern
        self._pattern = pattern
        self._matches = matches or (lambda text: pattern.fullmatch(text) is not None)
        domain, separator, rest = self.text.rpartition("://")
        if separator and domain not in DOMAINS:
            raise InvalidConfig(f"the pattern {self.text!r} begins with {domain!r}; give one of {', '.join(DOMAINS)}")
        parts = rest.split("/", 2)
        self._is_local = len(parts) < 3
        self._prefix = f"{domain}://" if separator else ""
        if self._is_local and (separator or len(parts) == 2):
            raise InvalidConfig(f"the pattern {self.text!r} is not tenant/namespace/topic, nor that of a topic alone")
        self.namespace = "public/default" if self._is_local else "/".join(parts[:2])
        if _NAMESPACE.fullmatch(self.namespace) is None:
            raise InvalidConfig(f"the pattern {self.text!r} is of many namespaces; name one as tenant/namespace/topic")
        self.asked = self._asked(f"{self.namespace}/({rest})" if self._is_local else rest)

    def __repr__(self) -> str:
        return f"TopicPattern({self.text!r})"

    @property
    def pattern(self) -> str:
        """The pattern's text, as in `re.Pattern`."""
        return self.text

    def _asked(self, exact: str) -> str | None:
        is_plain = self._pattern.flags == re.UNICODE and _SAME_EVERYWHERE.fullmatch(exact) is not None
        for text in (exact if is_plain else "", f"{self.namespace}/.*"):
            if text and len(text) <= MAX_ASKED_CHARS:
                return text
        return None

    def takes(self, topic: str) -> bool:
        """Return whether a topic's whole name matches, ignoring its domain and partition."""
        name = parse_topic_name(topic)
        if name.namespace_name != self.namespace:
            return False
        base = name.base
        text = base.local if self._is_local else f"{self._prefix}{base.namespace_name}/{base.local}"
        return self._matches(text)
