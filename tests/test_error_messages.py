"""The check of error messages finds what it looks for, and nothing else."""

from __future__ import annotations

import pytest

from tests.support.error_messages import OF_PULSAR, messages


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("raise ValueError('invalid ttl -1: expected 0 or more')", ""),
        ("raise ValueError(f'invalid ttl {ttl}; give 0 or more')", '"give"'),
        ("raise ValueError('the topic is ' + name + ' here.')", "a full stop at the end"),
        ("raise Refused(400, f'cannot read {path}.')", ""),
        ("raise Refused(reason='cannot read the file.')", "a full stop at the end"),
        ("raise Refused(404, 'The request entity cannot be empty.')", ""),
        ("raise ValueError('given up after 3 attempts')", ""),
    ],
)
def test_faults_of_a_message_are_named(source: str, fault: str) -> None:
    [message] = messages("m.py", source)
    assert message.fault == fault


def test_messages_of_pulsar_are_those_in_use() -> None:
    assert all(text.endswith(".") for text in OF_PULSAR)


def test_other_expressions_are_no_messages() -> None:
    assert not list(messages("m.py", "raise\nraise error\nraise KeyError(name)\nlog.error('a text.')\nraise E('word')"))
