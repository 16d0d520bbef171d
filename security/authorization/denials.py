"""Error responses for denials, with Pulsar's wording: status and reason over REST, message on the binary protocol.

Source: Pulsar 4.0, PulsarWebResource, ComponentImpl, PackagesBase and ServerCnx, as recorded from a real broker.
"""

from __future__ import annotations

from collections.abc import Callable

from ..roles import Roles
from .decisions import Refusal, Why
from .rules import Resource, Rule, Who
from .settings import AuthorizationSettings

Denial = tuple[int, str]
"""HTTP status and reason."""
UNAUTHENTICATED = "Need to authenticate to perform the request"
_NO_ORIGINAL = "Invalid combination of Original principal cannot be empty if the request is via proxy."
_NOT_AUTHORIZED = "Client is not authorized to perform operation"
_NO_TENANT = "Tenant does not exist"


def prefix_reason(refusal: Refusal, resource: Resource) -> str:
    """Return the error message for a subscription name that violates `subscriptionAuthMode` Prefix."""
    return (
        "Failed to create consumer - The subscription name needs to be prefixed by the authentication role, like"
        f" {_shown(refusal.role)}-xxxx for topic: {resource.topic}"
    )


def denial(settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource, refusal: Refusal) -> Denial:
    """Return status and reason for a denied REST request."""
    if refusal.why is Why.WRONG_PREFIX:
        return 500, prefix_reason(refusal, resource)
    if refusal.why is Why.INVALID_ROLES and rule.who in _NAMING_ROLES:
        return 401, _NO_ORIGINAL
    if refusal.why is Why.NO_TENANT and rule.who is Who.COMPONENT:
        return 500, f"org.apache.pulsar.common.util.RestException: {_NO_TENANT}"
    if refusal.why is Why.NO_TENANT and rule.who in _LOOKING_FOR_TENANT and resource.tenant:
        return 404, _NO_TENANT
    if roles.role is None and rule.who in _UNAUTHENTICATED:
        return _UNAUTHENTICATED[rule.who], UNAUTHENTICATED
    status = 403 if rule.who in _FORBIDDEN else 401
    return status, _WORDS[rule.who](settings, roles, rule, resource)


def _shown(role: str | None) -> str:
    return "null" if role is None else role


def _principals(roles: Roles) -> str:
    return f"for originalPrincipal [{_shown(roles.original)}] and clientAppId [{_shown(roles.role)}]"


def _super_user(settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource) -> str:
    if not settings.is_proxy(roles.role):
        return "This operation requires super-user access"
    if not settings.is_super_user(roles.role):
        return f"Proxy not authorized for super-user operation (proxy:{_shown(roles.role)})"
    return f"Original principal not authorized for super-user operation (original:{_shown(roles.original)})"


def _tenant_admin(settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource) -> str:
    if settings.is_proxy(roles.role):
        pair = f"proxy:{_shown(roles.role)},original:{_shown(roles.original)}"
        return f"Proxy not authorized to access resource ({pair})"
    return "Don't have permission to administrate resources on this tenant"


def _operation(rule: Rule) -> str:
    return "" if rule.operation is None else str(rule.operation.value)


_Words = Callable[[AuthorizationSettings, Roles, Rule, Resource], str]


def _both(check: str, what: str = "") -> _Words:
    """Return the message for operations for which Pulsar requires a super-user or a permission."""

    def words(settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource) -> str:
        on = f"on {what} [{resource.name}]" if what else ""
        return f"Unauthorized to {check} {_principals(roles)} about operation [{_operation(rule)}] {on}"

    return words


def _on(check: str, what: str, *, has_policy: bool = False) -> _Words:
    def words(settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource) -> str:
        subject = resource.topic if what == "topic" else resource.namespace
        policy = f" on policy [{rule.policy}]" if has_policy else ""
        return f"Unauthorized to {check} for operation [{_operation(rule)}] on {what} [{subject}]{policy}"

    return words


def _tenant(settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource) -> str:
    about = f"about operation [{_operation(rule)}] on tenant [{resource.tenant}]"
    return f"Unauthorized to validateTenantOperation {_principals(roles)} {about}"


_TENANTS = _both("validateBothTenantOperationAndSuperUser")
_WORDS: dict[Who, _Words] = {
    Who.SUPER_USER: _super_user,
    Who.CLUSTER: _both("validateBothSuperuserAndClusterOperation", "cluster"),
    Who.CLUSTER_POLICY: _both("validateBothSuperuserAndClusterPolicyOperation", "cluster"),
    Who.BROKER: _both("validateBothSuperuserAndBrokerOperation", "broker"),
    Who.WORKER: lambda *_: _NOT_AUTHORIZED,
    Who.TENANTS: _TENANTS,
    Who.TENANT_ITSELF: _TENANTS,
    Who.TENANT: _tenant,
    Who.TENANT_ADMIN: _tenant_admin,
    Who.NAMESPACE_POLICY: _on("validateNamespacePolicyOperation", "namespace", has_policy=True),
    Who.TOPIC_POLICY: _on("validateTopicPolicyOperation", "topic", has_policy=True),
    Who.NAMESPACE: _on("validateNamespaceOperation", "namespace"),
    Who.COMPONENT: lambda *_: _NOT_AUTHORIZED,
    Who.PACKAGES: lambda _, roles, *__: (
        f"Role {_shown(roles.role)} has not the 'package' permission to do the packages operations."
    ),
    Who.TOPIC: _on("validateTopicOperation", "topic"),
}
_FORBIDDEN = frozenset((Who.NAMESPACE, Who.NAMESPACE_POLICY, Who.TOPIC_POLICY))
_UNAUTHENTICATED = {
    Who.NAMESPACE: 403, Who.NAMESPACE_POLICY: 403, Who.TOPIC_POLICY: 403, Who.TENANT_ADMIN: 403, Who.TOPIC: 401,
}  # fmt: skip
"""Rule types with a separate denial for credentials without a role, and its status."""
_LOOKING_FOR_TENANT = frozenset(
    (Who.TENANT, Who.TENANT_ADMIN, Who.NAMESPACE, Who.NAMESPACE_POLICY, Who.TOPIC, Who.TOPIC_POLICY)
)
"""Rule types for which Pulsar reports a missing tenant, as it looks up the tenant's administrators."""
_NAMING_ROLES = frozenset(
    (Who.SUPER_USER, Who.CLUSTER, Who.CLUSTER_POLICY, Who.BROKER, Who.TENANTS, Who.TENANT_ITSELF, Who.TENANT_ADMIN)
)
"""Rule types for which Pulsar reports an invalid pair of roles; for others it sends the usual denial."""
