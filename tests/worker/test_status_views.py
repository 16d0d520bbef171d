"""What `status` shows of one instance, from the record that the instance gives."""

from __future__ import annotations

import pytest
from magnetar.wire.functions_pb2 import FunctionStatus
from magnetar.worker.functions.status_json import instance_status


@pytest.mark.parametrize("running", [True, False])
def test_instance_shows_what_it_waits_for_whether_it_runs_or_not(running: bool) -> None:
    """A running instance has an error while the state store is away, and counts as running all the same."""
    record = FunctionStatus(running=running, failureException="the state store at bk://h:1 cannot be reached")
    shown = instance_status(record, "w1")
    assert (shown["running"], shown["error"], shown["workerId"]) == (running, record.failureException, "w1")


def test_running_instance_without_trouble_has_no_error() -> None:
    assert instance_status(FunctionStatus(running=True), "w1")["error"] == ""
