"""Aliases for moved modules whose old names are still used by packages, pickles and configs.

`magnetar/__init__.py` installs the finder last, so it is only used for names that are not found otherwise. An aliased
module contains the same objects as the current module, so a class has one identity under both names.
"""

from __future__ import annotations

import importlib
from importlib.machinery import ModuleSpec
from types import ModuleType

_MOVED = {
    "api.config": "config.function_config",
    "api.config_fields": "config.conversion",
    "api.config_merge": "config.conversion",
    "api.config_records": "config.conversion",
    "api.config_rules": "config.rules",
    "broker.storage.position": "wire.position",
    "broker.storage.simulated_disk": "testing.simulated_disk",
    "client.ack_tracker": "client.consumers.ack_tracker",
    "client.acknowledger": "client.consumers.acknowledger",
    "client.admin": "client.deploy.rest",
    "client.backoff": "tasks.retry",
    "client.connection": "client.connections.connection",
    "client.connection_pool": "client.connections.pool",
    "client.consumer": "client.consumers.consumer",
    "client.consumers.claims": "client.consumers.acknowledger",
    "client.consumers.last_message": "client.consumers.command",
    "client.consumers.message_ids": "client.consumers.received",
    "client.consumers.resumption": "client.consumers.start",
    "client.deployment": "client.deploy.deployment",
    "client.functions": "client.deploy.functions",
    "client.hindrance": "client.deploy.unpicklable",
    "client.last_message": "client.consumers.command",
    "client.link": "client.connections.attachment",
    "client.local_modules": "client.deploy.local_modules",
    "client.lookup": "client.connections.lookup",
    "client.merged_consumer": "client.consumers.merged",
    "client.negative_acks": "client.consumers.negative_acks",
    "client.open_batch": "client.producers.open_batch",
    "client.outgoing": "client.producers.outgoing",
    "client.partitioned_producer": "client.producers.partitioned",
    "client.pending_queue": "client.producers.pending_queue",
    "client.permits": "client.consumers.receive_queue",
    "client.positions": "client.consumers.received",
    "client.producer": "client.producers.producer",
    "client.reader": "client.consumers.reader",
    "client.receive_queue": "client.consumers.receive_queue",
    "client.received": "client.consumers.received",
    "client.routing": "client.producers.routing",
    "client.service_url": "client.connections.service_url",
    "client.start": "client.consumers.start",
    "client.travel": "client.deploy.pickling",
    "client.waiters": "client.consumers.waiters",
    "runtime.pulsar_facade": "instance.loading.pulsar_facade",
    "runtime.spark.columns": "spark.source.columns",
    "runtime.spark.java": "spark.java",
    "runtime.spark.options": "spark.source.options",
    "runtime.spark.session": "spark.session",
    "runtime.spark.source": "spark.source.source",
    "runtime.spark.survey": "spark.source.topic_metadata",
    "runtime.spark.writer": "spark.source.writer",
    "runtime.state.client": "state.client",
    "runtime.state.values": "state.values",
}
"""Current names by old name, both relative to ``magnetar``."""

_PACKAGES = {"runtime.state"}
"""Packages that no longer exist, but contained modules in the table."""


class _Loader:
    """Fills a module with the contents of the current module."""

    def __init__(self, today: str | None) -> None:
        self._today = today

    def create_module(self, spec: ModuleSpec) -> None:
        """Let importlib create an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Copy all names except those set by importlib."""
        if self._today is None:
            return
        names = vars(importlib.import_module(self._today))
        module.__dict__.update({name: value for name, value in names.items() if not name.startswith("__")})


def spec_of(full_name: str) -> ModuleSpec | None:
    """Return the spec of a moved module by its full old name, or None."""
    root, _, name = full_name.partition(".")
    if name in _PACKAGES:
        return ModuleSpec(full_name, _Loader(None), is_package=True)  # type: ignore[arg-type]  # duck-typed
    if name in _MOVED:
        return ModuleSpec(full_name, _Loader(f"{root}.{_MOVED[name]}"))  # type: ignore[arg-type]  # duck-typed
    return None
