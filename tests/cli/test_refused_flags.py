"""The help marks each flag that is refused, and a local run has each of Pulsar's flags."""

from __future__ import annotations

import click
import pytest
from magnetar.cli.connectors.connectors import sinks, sources
from magnetar.cli.functions.functions import functions
from magnetar.config.connector_config import SINK_FLAGS, SOURCE_FLAGS
from magnetar.config.function_config import FUNCTION_FLAGS
from magnetar.config.table import Field

OF_FUNCTIONS = ("--web-service-url", "--instance-id-offset", "--instanceIdOffset")
GROUPS = ((functions, FUNCTION_FLAGS), (sources, SOURCE_FLAGS), (sinks, SINK_FLAGS))
MARK = "Refused: "

LOCAL_RUN_OF_PULSAR = (
    "--broker-service-url", "--brokerServiceUrl", "--web-service-url", "--state-storage-service-url",
    "--stateStorageServiceUrl", "--client-auth-plugin", "--clientAuthPlugin", "--client-auth-params",
    "--clientAuthParams", "--use-tls", "--use_tls", "--tls-allow-insecure", "--tls_allow_insecure",
    "--hostname-verification-enabled", "--hostname_verification_enabled", "--tls-trust-cert-path",
    "--tls_trust_cert_path", "--instance-id-offset", "--instanceIdOffset", "--runtime",
    "--secrets-provider-classname", "--secrets-provider-config", "--metrics-port-start",
)  # fmt: skip


def helps(group: click.Group, name: str) -> dict[str, str]:
    """Return the help of each flag of a command, by all its spellings; of what does not stand in the help, none."""
    command = group.commands[name]
    context = click.Context(command)
    found: dict[str, str] = {}
    for option in command.params:
        record = option.get_help_record(context)
        found |= dict.fromkeys(option.opts, record[1] if record else "")
    return found


@pytest.mark.parametrize("name", ["create", "update", "localrun"])
@pytest.mark.parametrize(("group", "flags"), [pytest.param(*found, id=found[0].name) for found in GROUPS])
def test_help_marks_the_flags_that_are_refused_and_no_other(
    group: click.Group, flags: tuple[tuple[str, Field], ...], name: str
) -> None:
    shown = helps(group, name)
    for path, field in flags:
        for flag in field.flags.split():
            assert (MARK in shown[flag]) == bool(field.refused), f"{name} {flag} of {path}"
            assert field.refused in shown[flag]


@pytest.mark.parametrize(("group", "name"), [(functions, "functions"), (sources, "sources"), (sinks, "sinks")])
def test_a_local_run_has_each_flag_of_pulsar(group: click.Group, name: str) -> None:
    shown = helps(group, "localrun")
    for flag in LOCAL_RUN_OF_PULSAR:
        only_of_functions = name != "functions" and flag in OF_FUNCTIONS
        assert bool(shown.get(flag)) != only_of_functions, f"{name} localrun {flag}"
        assert MARK not in shown.get(flag, "")
