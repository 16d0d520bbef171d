"""``/admin/v2/clusters``."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from ...web.answers import Refused, as_json, not_supported, nothing
from .bodies import as_object, as_text_list, with_field
from .call import Call
from .routing import Routes

_NO_URL = (None, "")
"""Values of an unset URL. The Go client sends all URL fields, even empty ones."""
_SERVICE_URL = re.compile(r"https?://[^/\s]+(/\S*)?")
_BROKER_URL = re.compile(r"pulsar(\+ssl)?://[^/\s]+(/\S*)?")
_FLAGS = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}
_LOCAL_FIELDS = {
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""Fields that Pulsar reports for its own cluster. Some clients read them; they have no effect here."""


def _get(call: Call) -> Response:
    data = _require(call)
    if call.cluster == call.namespaces.cluster_name:
        # Ports may differ at each start, so this cluster's addresses are computed, not stored.
        own = {"serviceUrl": call.web_url, "brokerServiceUrl": call.broker_url}
        if call.web_tls_url:
            own["serviceUrlTls"] = call.web_tls_url
        if call.broker_tls_url:
            own["brokerServiceUrlTls"] = call.broker_tls_url
        return as_json({**own, **_LOCAL_FIELDS, **_FLAGS, **data})
    return as_json({**_FLAGS, **data})


async def _create(call: Call) -> Response:
    cluster = call.new_cluster
    data = _check(as_object(await call.json(), "cluster data"))
    if call.namespaces.cluster(cluster) is not None:
        raise Refused(409, "Cluster already exists")
    await call.namespaces.create_cluster(cluster, data)
    return nothing()


async def _update(call: Call) -> Response:
    data = _check(as_object(await call.json(), "cluster data"))
    _require(call)
    await call.namespaces.change_cluster(call.cluster, lambda _: data)
    return nothing()


async def _delete(call: Call) -> None:
    _require(call)
    if call.cluster == call.namespaces.cluster_name:
        raise Refused(412, f"cluster {call.cluster} cannot be deleted: this broker belongs to it")
    await call.namespaces.delete_cluster(call.cluster)


def _get_peers(call: Call) -> Response:
    peers = _require(call).get("peerClusterNames")
    return nothing() if peers is None else as_json(peers)


async def _set_peers(call: Call) -> None:
    peers = as_text_list(await call.json(), "cluster names")
    _require(call)
    for peer in peers or ():
        if peer == call.cluster:
            raise Refused(412, f"{peer} itself can't be part of peer-list")
        if call.namespaces.cluster(peer) is None:
            raise Refused(412, f"Peer cluster {peer} does not exist")
    names = None if peers is None else sorted(set(peers))
    await call.namespaces.change_cluster(call.cluster, lambda data: with_field(data, "peerClusterNames", names))


def _refuse(call: Call) -> Response:
    feature = call.request.scope["path"].split("/")[5]
    raise not_supported(f"cluster {feature}", "the cluster has a single broker")


def _require(call: Call) -> dict[str, Any]:
    data = call.namespaces.cluster(call.cluster)
    if data is None:
        raise Refused(404, "Cluster does not exist")
    return data


def _check(data: dict[str, Any] | None) -> dict[str, Any]:
    if data is None:
        raise Refused(400, "cluster data is required")
    for field in ("serviceUrl", "serviceUrlTls"):
        if (url := data.get(field)) not in _NO_URL and not _SERVICE_URL.fullmatch(str(url)):
            raise Refused(400, "Illegal service url, example: http://pulsar.example.com:8080")
    for field in ("brokerServiceUrl", "brokerServiceUrlTls"):
        if (url := data.get(field)) not in _NO_URL and not _BROKER_URL.fullmatch(str(url)):
            raise Refused(400, "Illegal broker service url, example: pulsar://pulsar.example.com:6650")
    return {field: value for field, value in data.items() if value is not None}


ROUTES: Routes = (
    ("GET", "/admin/v2/clusters", lambda call: as_json(call.namespaces.clusters())),
    ("GET", "/admin/v2/clusters/{cluster}", _get),
    ("PUT", "/admin/v2/clusters/{cluster}", _create),
    ("POST", "/admin/v2/clusters/{cluster}", _update),
    ("DELETE", "/admin/v2/clusters/{cluster}", _delete),
    ("GET", "/admin/v2/clusters/{cluster}/peers", _get_peers),
    ("POST", "/admin/v2/clusters/{cluster}/peers", _set_peers),
    ("POST", "/admin/v2/clusters/{cluster}/failureDomains/{domain_name}", _refuse),
    ("POST", "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/{policy}", _refuse),
    ("POST", "/admin/v2/clusters/{cluster}/migrate", _refuse),
)
