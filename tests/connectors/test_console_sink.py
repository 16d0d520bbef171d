"""The sink ``console``: a line for each record, whatever is in it."""

from __future__ import annotations

import logging

import pytest
from magnetar.api.connector import Record
from magnetar.connectors.console_sink import ConsoleSink

from tests.connectors.direct import Direct


def test_console_shows_each_record_as_one_line_that_a_terminal_may_see(caplog: pytest.LogCaptureFixture) -> None:
    console = Direct(ConsoleSink(), {"mostChars": 12, "showMetadata": True})
    console.context.logger = logging.Logger("connector")  # nobody else's, whose level may be another
    console.context.logger.addHandler(caplog.handler)
    console.write([
        Record(b"two\nlines\x1b[2J", "k\n", {"p": "q"}, message_id="1:2:3"), Record(b"\xff\xc3\xa4"),
        Record("x" * 13),
    ])  # fmt: skip
    console.close()
    assert [record.getMessage() for record in caplog.records] == [
        "1:2:3 key='k\\n' properties={'p': 'q'} two\\nlines\\x1b[2...",
        " key=None properties={} \\xffä",
        " key=None properties={} xxxxxxxxxxxx...",
    ]
