"""Topic names: ``persistent://tenant/namespace/local``, their short forms and partitions.

Source: Pulsar binary protocol, section Topic names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import quote

from ..errors import InvalidTopicName

DOMAINS = ("persistent", "non-persistent")
_PARTITION = re.compile(r"(?s)(\s*\S.*)-partition-(0|[1-9][0-9]{0,9})")
"""Partition suffix after a valid topic name. ``-partition-0`` alone is a non-partitioned topic."""
_MAX_PARTITION = (1 << 31) - 1  # int32 in the protocol; beyond it Pulsar does not recognize a partition either
_NAME_PART = re.compile(r"[-=:.\w]+", re.ASCII)
MAX_NAME_BYTES = 1024
"""Maximum length of a topic name. Pulsar itself has no limit, but its metadata store does."""


@dataclass(frozen=True)
class TopicName:
    """A complete topic name, created by `parse_topic_name`."""

    domain: str
    tenant: str
    namespace: str
    local: str

    @cached_property
    def text(self) -> str:
        """The full name."""
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @cached_property
    def partition(self) -> int:
        """Partition index, or -1 if the name is not that of a partition."""
        match = _PARTITION.fullmatch(self.local)
        index = int(match[2]) if match else -1
        return index if index <= _MAX_PARTITION else -1

    @property
    def is_persistent(self) -> bool:
        """Whether messages of the topic are stored."""
        return self.domain == "persistent"

    @property
    def namespace_name(self) -> str:
        """``tenant/namespace``."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def base(self) -> TopicName:
        """The partitioned topic of a partition, or the name itself if it is not a partition."""
        match = _PARTITION.fullmatch(self.local)
        if match is None or self.partition < 0:
            return self
        return TopicName(self.domain, self.tenant, self.namespace, match[1])

    @property
    def rest_path(self) -> str:
        """``domain/tenant/namespace/local`` with the local part URL-encoded, as in REST paths."""
        return f"{self.domain}/{self.tenant}/{self.namespace}/{quote(self.local, safe='')}"

    def partition_name(self, index: int) -> TopicName:
        """Return the name of partition ``index`` of this topic."""
        return TopicName(self.domain, self.tenant, self.namespace, f"{self.local}-partition-{index}")

    def __str__(self) -> str:
        return self.text


def base_of(name: str) -> str:
    """Return a topic name, of which leading parts may be missing, without its partition suffix."""
    match = _PARTITION.fullmatch(name)
    return match[1] if match is not None and int(match[2]) <= _MAX_PARTITION else name


@lru_cache(maxsize=16384)
def parse_topic_name(text: str) -> TopicName:
    """Parse a topic name, which may be complete, ``tenant/namespace/local`` or ``local``.

    Raises:
        InvalidTopicName: the name is invalid; the message says which part.
    """
    complete = text
    if "://" not in text:
        parts = text.split("/")
        if len(parts) == 1:
            complete = f"persistent://public/default/{text}"
        elif len(parts) == 3:
            complete = f"persistent://{text}"
        else:
            raise InvalidTopicName(
                f"invalid topic name {text!r}: a short name is `topic` or `tenant/namespace/topic`, but this"
                f" one has {len(parts)} parts"
            )
    domain, _, rest = complete.partition("://")
    if domain not in DOMAINS:
        raise InvalidTopicName(f"invalid topic name {text!r}: domain {domain!r} is not one of {', '.join(DOMAINS)}")
    parts = rest.split("/", 2)
    if len(parts) != 3 or "/" in parts[2]:
        raise InvalidTopicName(f"invalid topic name {text!r}: expected {domain}://tenant/namespace/topic")
    tenant, namespace, local = parts
    for what, name in (("tenant", tenant), ("namespace", namespace)):
        if not _NAME_PART.fullmatch(name):
            raise InvalidTopicName(
                f"invalid topic name {text!r}: {what} {name!r} contains characters other than -=:.\\w"
            )
    if not local.strip():
        raise InvalidTopicName(f"invalid topic name {text!r}: the topic part is empty")
    if len(complete.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise InvalidTopicName(f"invalid topic name {text[:40]!r}…: longer than {MAX_NAME_BYTES} bytes")
    return TopicName(domain, tenant, namespace, local)
