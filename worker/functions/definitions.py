"""Connectors installed on this worker, as Pulsar's ConnectorDefinition."""

from __future__ import annotations

from typing import Any

from ...connectors.register import available

KINDS = ("source", "sink")


def connector_definitions(*kinds: str) -> list[dict[str, Any]]:
    """Return the definitions of all connectors of these kinds. Blocking: modules are imported.

    The following fields are not in Pulsar: ``aliases``, alternative names; ``extra``, the extra to install, as in
    ``magnetar[kafka]``; and ``notVerified``, the reason why the connector has not been tested with a real server.
    """
    by_name: dict[str, dict[str, Any]] = {}
    wanted: set[str] = set()
    for kind in KINDS:
        for one in available(kind):
            answer = by_name.setdefault(one.name, {"name": one.name, "description": one.description})
            answer[f"{kind}Class"] = one.class_name
            if one.config_name:
                answer[f"{kind}ConfigClass"] = one.config_name
            if one.aliases:
                answer["aliases"] = list(one.aliases)
            if one.extra:
                answer["extra"] = one.extra
            if one.unverified:
                answer["notVerified"] = one.unverified
            if kind in kinds:
                wanted.add(one.name)
                answer["description"] = one.description
    return [by_name[name] for name in sorted(wanted)]
