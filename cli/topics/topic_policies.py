"""``magnetar topicPolicies``: show and change topic policies."""

from __future__ import annotations

import click

from ..failure import Group
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import Call, Subject
from .level_policies import ONLY_TOPIC_POLICIES, TOPIC_POLICIES
from .policies import COMMANDS
from .policy_commands import GLOBAL, policy_commands
from .subscriptions import topic_argument, topic_path


@click.group("topicPolicies", cls=Group, not_here=PULSAR_COMMANDS["topicPolicies"])
def topic_policies() -> None:
    """Show and change topic policies, which apply to all partitions."""


_QUOTA = "backlog-quota"
_TABLE = tuple(
    policy._replace(get="get-backlog-quota") if policy.word == _QUOTA else policy
    for policy in (*TOPIC_POLICIES, *ONLY_TOPIC_POLICIES)
)
"""The policies of ``topics``, one of which has another name here."""

for _command in (*COMMANDS, *policy_commands(_TABLE, "topic", topic_path, [GLOBAL])):
    topic_policies.add_command(_command)
Subject(topic_path, [topic_argument]).commands(
    topic_policies,
    Call("delete", "DELETE", "/policies", "Remove all policies of a topic.", "Removed the policies of {topic}"),
)
