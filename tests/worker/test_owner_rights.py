"""A function is deployed only if the role as which it runs may use its topics."""

from __future__ import annotations

import pytest
from magnetar.errors import RequestRefused
from magnetar.security.authorization.grants import Grants, grants_of
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.wire.functions_pb2 import ConsumerSpec, FunctionDetails
from magnetar.worker.functions.owner_rights import OwnerRights

SETTINGS = AuthorizationSettings(is_enabled=True, super_user_roles=("root",))
POLICIES = {
    "auth_policies": {
        "namespace_auth": {"ann": ["consume"]},
        "destination_auth": {"persistent://acme/x/out": {"ann": ["produce"], "bob": ["produce"]}},
        "subscription_auth_roles": {"closed": ["eve"]},
    }
}


class Reader:
    async def read(self, tenant: str, namespace: str, *, is_fresh: bool = False) -> Grants:
        return grants_of({"adminRoles": []} if tenant == "acme" else None, POLICIES if namespace == "acme/x" else None)


def details(topic: str, *, is_pattern: bool = False, output: str = "") -> FunctionDetails:
    found = FunctionDetails()
    found.source.inputSpecs[topic].CopyFrom(ConsumerSpec(isRegexPattern=is_pattern))
    found.sink.topic = output
    return found


@pytest.mark.parametrize(
    ("role", "wanted", "subscription", "refused"),
    [
        ("ann", details("persistent://acme/x/in", output="persistent://acme/x/out"), "s", None),
        ("ann", details("persistent://acme/x/in-.*", is_pattern=True), "s", None),
        ("root", details("persistent://none/x/in"), "s", None),
        ("bob", details("persistent://acme/x/in"), "s", "may not consume from persistent://acme/x/in"),
        ("bob", details("persistent://acme/x/.*", is_pattern=True), "s", "may not list the topics of the namespace of"),
        ("ann", details("persistent://acme/x/in"), "closed", "may not consume from"),
        ("ann", details("persistent://acme/x/in", output="persistent://acme/x/b"), "s", "may not produce to"),
        ("ann", details("persistent://none/x/in"), "s", "the tenant does not exist"),
    ],
)
async def test_who_may_use_its_topics_may_deploy(
    role: str, wanted: FunctionDetails, subscription: str, refused: str | None
) -> None:
    rights = OwnerRights(SETTINGS, Reader())
    if refused is None:
        await rights.check(wanted, role, subscription)
        return
    with pytest.raises(RequestRefused, match=refused) as caught:
        await rights.check(wanted, role, subscription)
    assert caught.value.status == 403
