"""``magnetar subscriptions``: the commands of ``topics`` that concern a subscription, under shorter names."""

from __future__ import annotations

import copy

import click

from ..failure import Group
from .subscription_commands import COMMANDS

SHORT_NAMES = {
    "subscriptions": "list",
    "create-subscription": "create",
    "unsubscribe": "delete",
    "skip": "skip",
    "clear-backlog": "clear-backlog",
    "reset-cursor": "seek",
    "expire-messages": "expire",
    "peek-messages": "peek",
}


@click.group(cls=Group)
def subscriptions() -> None:
    """The subscriptions of a topic."""


for _command in COMMANDS:
    if _command.name in SHORT_NAMES:
        _short = copy.copy(_command)
        _short.name = SHORT_NAMES[_command.name]
        subscriptions.add_command(_short)
