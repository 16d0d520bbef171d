"""What decisions have in common, whatever is granted to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import InvalidConfig
from magnetar.security.authentication.proxies import fault_of_pair
from magnetar.security.authorization.broker_rules import BROKER_RULES
from magnetar.security.authorization.command_rules import COMMAND_RULES
from magnetar.security.authorization.decisions import Why, has_action, judge
from magnetar.security.authorization.grants import Grants, grants_of
from magnetar.security.authorization.operations import ACTIONS, TopicOperation
from magnetar.security.authorization.rules import EVERY_ROLE, Resource, Rule, Who
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.security.authorization.worker_rules import WORKER_RULES
from magnetar.security.roles import Roles
from magnetar.wire.topic_name import parse_topic_name

RULES = sorted(
    {
        *(rule for table in (BROKER_RULES, WORKER_RULES) for rules in table.values() for rule in rules),
        *(command.rule for command in COMMAND_RULES.values()),
    },
    key=repr,
)
OPEN = (Who.EVERYBODY, Who.EVERY_ROLE, Who.BY_THE_HANDLER)
NAMES = ("a", "b", "ab", "boss", "super", "proxy", "proxy2")
SETTINGS = AuthorizationSettings(
    is_enabled=True, super_user_roles=("super",), proxy_roles=("proxy", "proxy2"), allows_wildcards=True
)
TOPICS = tuple(f"persistent://t/n/{local}" for local in ("x", "p", "p-partition-0", "p-partition-1"))

names = st.sampled_from(NAMES)
patterns = st.sampled_from((*NAMES, "*", "a*", "*b"))
actions = st.lists(st.sampled_from(ACTIONS), unique=True, max_size=3)
by_role = st.dictionaries(patterns, actions, max_size=3)
rules = st.sampled_from(RULES)
resources = st.builds(
    lambda topic, subscription: Resource.of_topic(parse_topic_name(topic), subscription),
    st.sampled_from(TOPICS), st.sampled_from((None, "a-1", "b", "s")),
)  # fmt: skip
granted = st.builds(
    Grants,
    has_tenant=st.booleans(),
    admin_roles=st.lists(names, max_size=2),
    by_namespace=by_role,
    by_topic=st.dictionaries(st.sampled_from(TOPICS), by_role, max_size=3),
    by_subscription=st.dictionaries(st.sampled_from(("a-1", "b", "s")), st.lists(names, max_size=2), max_size=2),
    needs_prefix=st.booleans(),
)
wildcards = st.booleans().map(lambda allows: replace(SETTINGS, allows_wildcards=allows))


def allowed(settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource, grants: Grants) -> bool:
    return judge(settings, roles, rule, resource, grants) is None


@given(wildcards, names, rules, resources, granted, patterns, st.sampled_from(ACTIONS), st.sampled_from(TOPICS))
def test_a_grant_more_takes_nothing_away(
    settings: AuthorizationSettings, role: str, rule: Rule, resource: Resource, grants: Grants, to: str, action: str,
    topic: str,
) -> None:  # fmt: skip
    if not allowed(settings, Roles(role), rule, resource, grants):
        return
    on_namespace = {**grants.by_namespace, to: [*grants.by_namespace.get(to, ()), action]}
    of_topic = grants.by_topic.get(topic, {})
    on_topic = {**grants.by_topic, topic: {**of_topic, to: [*of_topic.get(to, ()), action]}}
    listed = {name: [*roles, to] for name, roles in grants.by_subscription.items() if roles}
    for more in (
        replace(grants, by_namespace=on_namespace),
        replace(grants, by_topic=on_topic),
        replace(grants, admin_roles=[*grants.admin_roles, to]),
        replace(grants, by_subscription=listed),
        replace(grants, has_tenant=True),
    ):
        assert allowed(settings, Roles(role), rule, resource, more)


@given(wildcards, rules, resources, granted)
def test_a_super_user_is_always_allowed(
    settings: AuthorizationSettings, rule: Rule, resource: Resource, grants: Grants
) -> None:
    assert allowed(settings, Roles("super"), rule, resource, grants)


@given(rules, resources, granted, st.sampled_from((None, "stranger")))
def test_who_has_no_grant_may_do_nothing_but_what_everybody_may(
    rule: Rule, resource: Resource, grants: Grants, role: str | None
) -> None:
    settings = replace(SETTINGS, allows_wildcards=False)
    assert allowed(settings, Roles(role), rule, resource, grants) == (rule.who in OPEN)


@given(wildcards, rules, resources, granted)
def test_a_credential_without_a_role_gets_nothing_by_any_grant(
    settings: AuthorizationSettings, rule: Rule, resource: Resource, grants: Grants
) -> None:
    assert allowed(settings, Roles(None), rule, resource, grants) == (rule.who in OPEN)


@given(wildcards, st.sampled_from(("proxy", "proxy2")), names, rules, resources, granted)
def test_a_proxy_may_what_it_and_the_one_it_asks_for_may(
    settings: AuthorizationSettings, proxy: str, original: str, rule: Rule, resource: Resource, grants: Grants
) -> None:
    together = allowed(settings, Roles(proxy, original), rule, resource, grants)
    alone = replace(settings, proxy_roles=())
    each = [allowed(alone, Roles(role), rule, resource, grants) for role in (proxy, original)]
    is_pair = not settings.is_proxy(original)
    assert together == (rule.who in OPEN or (is_pair and all(each)))


@given(st.sampled_from((None, *NAMES)), st.sampled_from((None, "", " ", *NAMES)))
def test_authorization_and_authentication_agree_on_valid_pairs(role: str | None, original: str | None) -> None:
    roles = Roles(role, original)
    assert SETTINGS.is_valid(roles) == (fault_of_pair(roles, SETTINGS.proxy_roles, own_name_passes=True) is None)


@given(rules, resources, granted)
def test_an_administrator_of_the_tenant_may_all_but_what_is_for_super_users(
    rule: Rule, resource: Resource, grants: Grants
) -> None:
    grants = replace(grants, has_tenant=True, admin_roles=["boss"])
    for_super_users = (Who.SUPER_USER, Who.CLUSTER, Who.CLUSTER_POLICY, Who.BROKER, Who.WORKER, Who.TENANTS)
    assert allowed(SETTINGS, Roles("boss"), rule, resource, grants) == (rule.who not in for_super_users)


@given(rules, resources, granted, names)
def test_without_wildcards_a_pattern_is_a_name(rule: Rule, resource: Resource, grants: Grants, role: str) -> None:
    settings = replace(SETTINGS, allows_wildcards=False)
    without = replace(
        grants,
        by_namespace={name: held for name, held in grants.by_namespace.items() if "*" not in name},
        by_topic={
            topic: {name: held for name, held in of_topic.items() if "*" not in name}
            for topic, of_topic in grants.by_topic.items()
        },
    )
    found = [allowed(settings, Roles(role), rule, resource, each) for each in (grants, without)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("pattern", "role", "is_allowed"),
    [("abc*", "abcd", True), ("abc*", "abc", True), ("*abc", "xabc", True), ("a*c", "abc", False), ("*", "x", True),
     ("", "x", False)],
)  # fmt: skip
def test_a_pattern_ends_or_begins_with_an_asterisk(pattern: str, role: str, is_allowed: bool) -> None:
    assert has_action({pattern: ["consume"]}, role, "consume", True) == is_allowed


@pytest.mark.parametrize(
    "broken",
    [
        None, [], "x", {"namespace_auth": []}, {"namespace_auth": {"a": "consume"}},
        {"destination_auth": {TOPICS[0]: ["a"]}}, {"subscription_auth_roles": 5},
    ],
)  # fmt: skip
def test_grants_that_are_no_grants_open_nothing(broken: Any) -> None:
    grants = grants_of({"adminRoles": "abc"}, {"auth_policies": broken})
    rule = Rule(Who.TOPIC, TopicOperation.CONSUME)
    refusal = judge(SETTINGS, Roles("a"), rule, Resource.of_topic(parse_topic_name(TOPICS[0])), grants)
    assert refusal is not None
    assert refusal.why is Why.NOT_ALLOWED


def test_an_empty_role_is_no_setting() -> None:
    with pytest.raises(InvalidConfig, match="superUserRoles contains an empty role ' '"):
        AuthorizationSettings(super_user_roles=("a", " "))
    assert allowed(SETTINGS, Roles(None), EVERY_ROLE[0], Resource(), Grants())
