"""Topic patterns of consumers: their namespace, matching, and the pattern sent to the broker.

Brokers use Java's regular expressions, and accept only short ones. The application's pattern is sent to the broker if
both engines treat it the same; otherwise a pattern for the whole namespace is sent. The response is always matched
locally as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import InvalidConfig
from ...wire.topic_name import DOMAINS, parse_topic_name

MAX_ASKED_CHARS = 50
"""The brokers' limit (`subscriptionPatternMaxLength`)."""

_NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)
# Literals, dots, simple repetition, groups, alternatives: the same in every engine. `*+` and similar are possessive.
_SAME_EVERYWHERE = re.compile(r"(?:[-=:\w/.|()]|[.\w][*+](?![*+?]))*", re.ASCII)


class TopicPattern:
    """A pattern of topic names in one namespace.

    Attributes:
        text: the application's pattern.
        namespace: ``tenant/namespace``.
        asked: the pattern for the broker to list or watch; None if it would exceed the broker's limit.
    """

    def __init__(self, pattern: re.Pattern[str], matches: Callable[[str], bool] | None = None) -> None:
        """Create a pattern for full names, with or without a domain, or for local names in ``public/default``.

        Args:
            pattern: compiled pattern.
            matches: returns whether the pattern matches a whole string; None uses Python's engine, which may take very
                long.

        Raises:
            InvalidConfig: tenant or namespace of the pattern is not a literal name.
        """
        if not isinstance(pattern.pattern, str):
            raise InvalidConfig(f"invalid pattern {pattern.pattern!r}: expected a pattern compiled from str, not bytes")
        self.text = pattern.pattern
        self._pattern = pattern
        self._matches = matches or (lambda text: pattern.fullmatch(text) is not None)
        domain, separator, rest = self.text.rpartition("://")
        if separator and domain not in DOMAINS:
            raise InvalidConfig(f"unknown domain {domain!r} in pattern {self.text!r}: expected {' or '.join(DOMAINS)}")
        parts = rest.split("/", 2)
        self._is_local = len(parts) < 3
        self._prefix = f"{domain}://" if separator else ""
        if self._is_local and (separator or len(parts) == 2):
            raise InvalidConfig(f"invalid pattern {self.text!r}: expected tenant/namespace/topic, or only a topic")
        self.namespace = "public/default" if self._is_local else "/".join(parts[:2])
        if _NAMESPACE.fullmatch(self.namespace) is None:
            raise InvalidConfig(f"invalid pattern {self.text!r}: tenant and namespace must be literal names")
        self.asked = self._asked(f"{self.namespace}/({rest})" if self._is_local else rest)

    def __repr__(self) -> str:
        return f"TopicPattern({self.text!r})"

    @property
    def pattern(self) -> str:
        """The pattern string, as in `re.Pattern`."""
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
