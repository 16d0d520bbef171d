"""What became of each record of a batch: none is sent twice, the refused ones are named, the others are written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from magnetar.api.connector import Record, RecordRefused, Retry
from magnetar.connectors.documents import Outcome, Outcomes, document_of, halved


def give(outcomes: Outcomes, records: list[Record], answers: dict[str, list[Outcome]]) -> tuple[list[str], list[str]]:
    """Give a batch as an instance does; return the values that were sent, and those that were refused."""
    sent: list[str] = []
    refused: list[str] = []

    def send(some: Sequence[Record]) -> list[Outcome]:
        sent.extend(record.value for record in some)
        return [answers[record.value].pop(0) if answers.get(record.value) else None for record in some]

    while True:
        try:
            outcomes.write(records, send)
        except RecordRefused as error:
            refused.append(records[error.index].value)
            left = [record for index, record in enumerate(records) if index != error.index]
            records = left[error.written :]
        except Retry:
            continue
        else:
            return sent, refused


def test_refused_records_leave_alone_and_nothing_is_sent_twice() -> None:
    records = [Record(letter) for letter in "abcdef"]
    sent, refused = give(Outcomes(), records, {"b": ["bad"], "c": ["bad"], "f": ["bad"]})
    assert sent == list("abcdef")
    assert refused == ["b", "c", "f"]


def test_records_that_are_put_off_are_sent_again_without_the_others() -> None:
    records = [Record(letter) for letter in "abc"]
    sent, refused = give(Outcomes(), records, {"b": [Retry("busy"), Retry("busy")], "c": ["bad"]})
    assert sent == ["a", "b", "c", "b", "b"]
    assert refused == ["c"]


def test_a_batch_is_forgotten_when_it_is_written() -> None:
    outcomes = Outcomes()
    record = Record("a")
    assert give(outcomes, [record], {})[0] == ["a"]
    assert give(outcomes, [record], {})[0] == ["a"]


def test_halves_find_the_culprits() -> None:
    requests: list[Sequence[int]] = []

    def send(some: Sequence[int]) -> Outcome:
        requests.append(some)
        return "bad" if {5, 6, 99} & set(some) else None

    outcomes = halved(range(100), send, lambda cause: True)
    assert [index for index, outcome in enumerate(outcomes) if outcome is not None] == [5, 6, 99]
    assert len(requests) < 40


def test_a_server_that_is_away_is_asked_once() -> None:
    requests: list[Sequence[int]] = []

    def send(some: Sequence[int]) -> Outcome:
        requests.append(some)
        return Retry("away")

    assert all(isinstance(outcome, Retry) for outcome in halved(range(100), send, lambda cause: True))
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "must be a JSON object, not list"),
        (b"\xff{}", "not valid JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"[" * 100_000, "not valid JSON"),
        (7, "not int"),
    ],
)
def test_what_is_no_object_is_refused(value: object, text: str) -> None:
    with pytest.raises(RecordRefused, match=text):
        document_of(Record(value))
