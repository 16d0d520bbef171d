"""Conclusions from the ends of a process, the file that outlives it, and turns of functions that share one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from magnetar.instance.deaths.journal import CallJournal
from magnetar.instance.deaths.record import Call, DeathRecord, Message, from_json, ranges_of
from magnetar.instance.turns import Turns

MESSAGES: list[Message] = [("t", 1, 2, index) for index in range(4)]


def in_flight(*messages: Message, is_alone: bool = True) -> list[Call]:
    return [Call(ranges_of(messages), is_alone)]


def test_message_that_was_alone_is_charged_with_the_deaths_before_it() -> None:
    record = DeathRecord()
    assert record.died("first", None) is None
    assert record.died("second", in_flight(*MESSAGES)) is None
    assert record.suspects() == set(MESSAGES)
    assert record.died("third", in_flight(MESSAGES[2])) == MESSAGES[2]
    assert record.tried[MESSAGES[2]] == (3, "third")
    assert record.suspects() == {MESSAGES[2]}


def test_message_is_not_charged_with_deaths_during_which_others_were_in_flight() -> None:
    record = DeathRecord()
    record.died("first", in_flight(*MESSAGES[:2]))
    record.died("second", in_flight(MESSAGES[3]))
    assert record.tried[MESSAGES[3]].times == 1
    assert record.suspects() == {*MESSAGES[:2], MESSAGES[3]}


def test_death_while_others_ran_is_charged_to_no_message() -> None:
    record = DeathRecord()
    assert record.died("first", in_flight(MESSAGES[0], is_alone=False)) is None
    assert record.died("second", [*in_flight(MESSAGES[0]), *in_flight(MESSAGES[1])]) is None
    assert record.tried == {}


def test_death_while_the_function_was_idle_takes_the_blame_for_unknown_ones() -> None:
    record = DeathRecord()
    record.died("first", None)
    record.died("second", [])
    record.died("third", in_flight(MESSAGES[0]))
    assert record.tried[MESSAGES[0]].times == 1


def test_record_survives_its_file(tmp_path: Path) -> None:
    record = DeathRecord()
    record.died("first", in_flight(*MESSAGES))
    record.died("é\n", in_flight(MESSAGES[0]))
    assert from_json(record.to_json()) == record
    for text in ("", "{}", "[]", '{"periods": 1, "deaths": [[1]], "tried": []}', '{"periods": "x"}'):
        assert from_json(text) == DeathRecord()


def test_journal_says_what_was_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "f.calls"
    journal = CallJournal(path)
    assert journal.read() is None
    journal.start(DeathRecord(), is_recording=True)
    first = journal.begin(ranges_of(MESSAGES[:1]), is_alone=True)
    second = journal.begin(ranges_of(MESSAGES[1:]), is_alone=False)
    journal.end(first)
    with path.open("a") as file:
        file.write('["-", ')  # cut off by the end of the process
    found = CallJournal(path).read()
    assert found is not None
    assert found.calls == [Call([("t", 1, 2, 1, 3)], False)]
    journal.change(second, ranges_of(MESSAGES[1:]), is_alone=True)
    journal.died("because")
    journal.end(second)
    journal.stop()
    found = CallJournal(path).read()
    assert found is not None
    assert found.reason == "because"


def test_stop_keeps_what_is_known_of_a_message_that_is_looked_for(tmp_path: Path) -> None:
    record = DeathRecord()
    record.died("first", None)
    for is_recording in (True, False):
        journal = CallJournal(tmp_path / "f.calls")
        journal.start(record, is_recording=is_recording)
        journal.stop()
        found = journal.read()
        assert (found is not None) == is_recording
        assert found is None or (found.record, found.calls) == (record, [])


@pytest.mark.parametrize("size", [200, 20_000])
def test_journal_is_bounded(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f.calls"
    journal = CallJournal(path)
    journal.start(DeathRecord(), is_recording=True)
    kept = journal.begin(ranges_of(MESSAGES), is_alone=True)
    for _ in range(size):
        journal.end(journal.begin(ranges_of(MESSAGES[:1]), is_alone=True))
    assert path.stat().st_size < 2 * 1024 * 1024
    found = CallJournal(path).read()
    assert found is not None
    assert found.calls is not None
    assert len(found.calls) == 1
    journal.end(kept)
    journal.stop()
    assert not path.exists()


def test_call_is_alone_until_another_has_waited_for_too_long() -> None:
    turns = Turns(wait_s=0.05)
    told: list[bool] = []
    turns.begin(told.append)
    assert told == [True]
    other = threading.Thread(target=turns.begin, args=(None,))
    other.start()
    other.join()
    assert told == [True, False]
    turns.end(told.append)
    turns.end(None)


def test_call_that_cannot_be_alone_goes_on_without() -> None:
    turns = Turns(wait_s=0.05)
    told: list[bool] = []
    turns.begin(None)
    turns.begin(told.append)
    assert told == []
    turns.end(None)
    turns.end(told.append)


def test_calls_follow_one_that_is_alone() -> None:
    turns = Turns(wait_s=60)
    order: list[str] = []

    def alone(is_alone: bool) -> None:
        order.append(f"alone {is_alone}")

    turns.begin(alone)

    def run() -> None:
        turns.begin(None)
        order.append("beside")
        turns.end(None)

    other = threading.Thread(target=run)
    other.start()
    order.append("ends")
    turns.end(alone)
    other.join()
    assert order == ["alone True", "ends", "beside"]
