"""Authorization rules of the functions worker's REST interface: one row for each route.

Source: Pulsar 4.0, ComponentImpl, FunctionsImpl, WorkerImpl and PackagesBase. Paths that Pulsar lacks have the rules of
similar paths.
"""

from __future__ import annotations

from .broker_rules import package_rules
from .operations import NamespaceOperation
from .rules import EVERY_ROLE, EVERYBODY, SUPER_USER, WORKER, RestTable, Rule, Rules, Who

_COMPONENTS: dict[str, NamespaceOperation] = {
    "functions": NamespaceOperation.FUNCTIONS,
    "sources": NamespaceOperation.SOURCES,
    "source": NamespaceOperation.SOURCES,
    "sinks": NamespaceOperation.SINKS,
    "sink": NamespaceOperation.SINKS,
}
"""Path elements of each component type; connectors have two spellings."""
_WHOLE = {
    "": ("GET", "POST", "PUT", "DELETE"),
    "/status": ("GET",),
    "/stats": ("GET",),
    "/logs": ("GET",),
    "/download": ("GET",),
    "/ended": ("GET",),
    "/runs": ("GET",),
    "/trigger": ("POST",),
    "/reset-cursor": ("POST",),
    "/start": ("POST",),
    "/stop": ("POST",),
    "/restart": ("POST",),
    "/state/{key:path}": ("GET", "POST"),
    "/versions": ("GET",),
    "/deployment": ("GET",),
    "/rollback": ("POST",),
}
_INSTANCE = {
    "/status": ("GET",),
    "/stats": ("GET",),
    "/logs": ("GET",),
    "/trigger": ("POST",),
    "/start": ("POST",),
    "/stop": ("POST",),
    "/restart": ("POST",),
    "/deployment": ("GET",),
}
_WORKER = "/admin/v2/worker"
_OF_WORKERS = {
    f"{_WORKER}/cluster": ("GET",),
    f"{_WORKER}/cluster/leader": ("GET",),
    f"{_WORKER}/assignments": ("GET",),
    f"{_WORKER}/connectors": ("GET",),
    f"{_WORKER}/rebalance": ("PUT",),
    f"{_WORKER}/drain": ("PUT", "GET"),
    f"{_WORKER}/leader/drain": ("PUT", "GET"),
    "/admin/v2/worker-stats/metrics": ("GET",),
    "/admin/v2/worker-stats/functionsmetrics": ("GET",),
    "/admin/v3/functions/builtins/reload": ("POST",),
    "/admin/v3/functions/upload": ("POST",),
    "/admin/v3/functions/download": ("GET",),
    "/admin/v3/functions/leader/{tenant}/{namespace}/{name}": ("PUT",),
}
"""Routes for super-users, such as the other workers of the cluster."""


def _component_rules() -> dict[tuple[str, str], Rules]:
    rules: dict[tuple[str, str], Rules] = {}
    for kind, operation in _COMPONENTS.items():
        rule = (Rule(Who.COMPONENT, operation),)
        base = f"/admin/v3/{kind}/{{tenant}}/{{namespace}}"
        one = f"{base}/{{name}}"
        rules["GET", base] = rule
        for prefix, table in ((one, _WHOLE), (f"{one}/{{instance_id}}", _INSTANCE)):
            rules |= {(method, prefix + path): rule for path, methods in table.items() for method in methods}
    return rules


def _connector_rules() -> dict[tuple[str, str], Rules]:
    rules: dict[tuple[str, str], Rules] = {}
    for kind in ("source", "sink"):
        for base in (f"/admin/v3/{kind}s", f"/admin/v3/{kind}"):
            rules["GET", f"{base}/builtin{kind}s"] = EVERY_ROLE
            rules["GET", f"{base}/builtin{kind}s/{{name}}/configdefinition"] = EVERY_ROLE
            rules["POST", f"{base}/reloadBuiltIn{kind.title()}s"] = SUPER_USER
    return rules


WORKER_RULES: RestTable = {
    **_component_rules(),
    **_connector_rules(),
    **package_rules("name"),
    **{(method, path): WORKER for path, methods in _OF_WORKERS.items() for method in methods},
    ("GET", f"{_WORKER}/cluster/leader/ready"): EVERY_ROLE,
    ("GET", "/admin/v3/functions/connectors"): EVERY_ROLE,
    ("GET", "/admin/v3/functions/builtins"): EVERY_ROLE,
    ("GET", "/version"): EVERY_ROLE,
    ("GET", "/initialized"): EVERY_ROLE,
    ("GET", "/openapi.json"): EVERY_ROLE,
    ("GET", "/docs"): EVERY_ROLE,
    ("GET", "/redoc"): EVERY_ROLE,
    ("GET", "/metrics"): EVERYBODY,
}
"""Rules of the worker's routes; each component type has the same set."""
