"""What is said about lists of records without entries."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.output import Table
from magnetar.cli.rest import Admin, Record, rest_command
from magnetar.cli.settings import find_settings


def run(found: list[Any], *flags: str) -> tuple[str, str]:
    """Standard output and standard error of a command that shows records, in a pipe."""

    @rest_command(None, "list")
    def list_letters(rest: Admin, /) -> Record:
        return Record(found, lambda rows: Table(("id",), [(row,) for row in rows]), "no dead letters of a/b/c")

    assert isinstance(list_letters, click.Command)
    result = CliRunner().invoke(list_letters, flags, obj=find_settings(None, None, None))
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize(("flags", "notice"), [((), "no dead letters of a/b/c\n"), (("-o", "json"), "")])
def test_an_empty_list_is_json_on_standard_output_with_a_notice_beside_it(flags: tuple[str, ...], notice: str) -> None:
    out, error = run([], *flags)
    assert json.loads(out) == []
    assert error == notice


def test_a_list_with_entries_has_no_notice() -> None:
    assert run(["1:0"]) == ('[\n  "1:0"\n]\n', "")
