"""Endpoints of Pulsar 4.0 for features that a single broker without bookies does not have.

Reads return Pulsar's response for an unset value; writes are rejected with a reason. With these routes, every path of
Pulsar's broker has a handler.
"""

from __future__ import annotations

from starlette.responses import Response

from ...web.answers import Refused, as_json, not_supported, refusing
from .call import Call
from .forward import NO_PACKAGES
from .routing import NAMESPACE, TOPIC, Routes

_CLUSTER = "/admin/v2/clusters/{cluster}"
_BOOKIES = "/admin/v2/bookies"
_STATS = "/admin/v2/broker-stats"
_PACKAGES = "/admin/v3/packages/{type}/{tenant}/{namespace}"


def _require_cluster(call: Call, status: int) -> str:
    if call.namespaces.cluster(call.cluster) is None:
        raise Refused(status, f"Cluster {call.cluster} does not exist.")
    return call.cluster


def _no_domain(call: Call) -> Response:
    cluster = _require_cluster(call, 412)
    raise Refused(404, f"Domain {call.text('domain_name')} for cluster {cluster} does not exist")


def _no_domain_to_delete(call: Call) -> Response:
    raise Refused(404, f"Domain-name {call.text('domain_name')} or cluster {call.cluster} does not exist")


def _no_isolation(call: Call) -> Response:
    cluster = _require_cluster(call, 404)
    raise Refused(404, f"NamespaceIsolationPolicies for cluster {cluster} does not exist")


def _isolated_brokers(call: Call) -> Response:
    _require_cluster(call, 404)
    return as_json([_isolation_of(call.host)])


def _isolated_broker(call: Call) -> Response:
    _require_cluster(call, 404)
    return as_json(_isolation_of(call.text("broker")))


def _isolation_of(broker: str) -> dict[str, object]:
    return {"brokerName": broker, "namespaceRegex": [], "primary": False}


def _no_rack(call: Call) -> Response:
    raise Refused(404, f"Bookie rack placement configuration not found: {call.text('bookie')}")


def _set_rack(call: Call) -> Response:
    if not call.request.query_params.get("group"):
        raise Refused(412, "Bookie 'group' parameters is missing")
    raise not_supported("bookie rack placement", "there are no bookies: the broker stores topics itself")


_NO_LOAD_MANAGER = refusing(Refused(409, "there is no load manager: the cluster's only broker serves all topics"))
_NO_SHUTDOWN = refusing(not_supported("shutdown over HTTP", "send SIGTERM to the broker process for a clean shutdown"))
_NO_OFFLOAD = refusing(not_supported("offloading", "all ledgers are on this machine"))
_NO_OFFLINE = refusing(
    not_supported("the backlog of an offline topic", "use GET …/stats, which loads the topic and reports its backlog")
)
_NO_PACKAGES = refusing(Refused(503, NO_PACKAGES))
_NO_REST_MESSAGES = refusing(not_supported("publishing over HTTP", "use a Pulsar client or magnetar produce"))

ROUTES: Routes = (
    ("GET", f"{_CLUSTER}/failureDomains", lambda _: as_json({})),
    ("GET", f"{_CLUSTER}/failureDomains/{{domain_name}}", _no_domain),
    ("DELETE", f"{_CLUSTER}/failureDomains/{{domain_name}}", _no_domain_to_delete),
    ("GET", f"{_CLUSTER}/namespaceIsolationPolicies", _no_isolation),
    ("GET", f"{_CLUSTER}/namespaceIsolationPolicies/brokers", _isolated_brokers),
    ("GET", f"{_CLUSTER}/namespaceIsolationPolicies/brokers/{{broker}}", _isolated_broker),
    ("GET", f"{_CLUSTER}/namespaceIsolationPolicies/{{policy}}", _no_isolation),
    ("DELETE", f"{_CLUSTER}/namespaceIsolationPolicies/{{policy}}", lambda _: None),
    ("GET", f"{_CLUSTER}/migrate", refusing(Refused(404, "Cluster does not exist"))),
    ("GET", f"{_BOOKIES}/all", lambda _: as_json({"bookies": []})),
    ("GET", f"{_BOOKIES}/racks-info", lambda _: as_json({})),
    ("GET", f"{_BOOKIES}/racks-info/{{bookie}}", _no_rack),
    ("POST", f"{_BOOKIES}/racks-info/{{bookie}}", _set_rack),
    ("DELETE", f"{_BOOKIES}/racks-info/{{bookie}}", _no_rack),
    ("GET", f"{_STATS}/bookieops", lambda _: as_json({})),
    ("GET", f"{_STATS}/broker-resource-availability/{{tenant}}/{{namespace}}", _NO_LOAD_MANAGER),
    ("POST", "/admin/v2/brokers/shutdown", _NO_SHUTDOWN),
    ("GET", f"{NAMESPACE}/scanOffloadedLedgers", _NO_OFFLOAD),
    ("GET", f"{TOPIC}/backlog", _NO_OFFLINE),
    ("GET", _PACKAGES, _NO_PACKAGES),
    ("GET", f"{_PACKAGES}/{{package}}", _NO_PACKAGES),
    *((verb, f"{_PACKAGES}/{{package}}/{{version}}", _NO_PACKAGES) for verb in ("GET", "POST", "DELETE")),
    *((verb, f"{_PACKAGES}/{{package}}/{{version}}/metadata", _NO_PACKAGES) for verb in ("GET", "PUT")),
    ("POST", "/topics/{domain}/{tenant}/{namespace}/{topic}", _NO_REST_MESSAGES),
    ("POST", "/topics/{domain}/{tenant}/{namespace}/{topic}/partitions/{partition}", _NO_REST_MESSAGES),
)
