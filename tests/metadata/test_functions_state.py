"""The table of functions: versions, repeated requests, unreadable records, and a model of many leaders."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from magnetar.errors import FunctionExists, OutOfDate
from magnetar.metadata.functions import FunctionRequest, FunctionTable, fqfn
from magnetar.metadata.replicated_log import LogRecord
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData


def record(name: str = "f", version: int = 0, created: int = 1, output: str = "") -> FunctionMetaData:
    details = FunctionDetails(tenant="t", namespace="n", name=name)
    details.sink.topic = output
    return FunctionMetaData(functionDetails=details, version=version, createTime=created)


def carry_out(table: FunctionTable, request: FunctionRequest) -> LogRecord | None:
    """Decide and apply, as a leader does."""
    entry = table.decide(request)
    if entry is not None:
        table.apply(entry.key, entry.value, entry.properties)
    return entry


def test_a_created_function_is_there_and_a_deleted_one_is_gone() -> None:
    table = FunctionTable()
    carry_out(table, FunctionRequest(record(), "a"))
    assert table.get("t/n/f") == record()
    entry = carry_out(table, FunctionRequest(record(version=1), "b", is_deletion=True))
    assert entry is not None
    assert entry.value == b""
    assert table.get("t/n/f") is None


def test_a_reader_whom_compaction_spared_a_deletion_goes_over_to_the_next_creation() -> None:
    leader, reader = FunctionTable(), FunctionTable()
    for version in range(3):
        entry = carry_out(leader, FunctionRequest(record(version=version), f"first{version}"))
        assert entry is not None
        reader.apply(*entry)
    carry_out(leader, FunctionRequest(record(version=3), "gone", is_deletion=True))
    created = carry_out(leader, FunctionRequest(record(created=2), "second"))
    assert created is not None
    reader.apply(*created)
    assert reader.get("t/n/f") == record(created=2)
    deleted = carry_out(leader, FunctionRequest(record(version=1, created=2), "gone too", is_deletion=True))
    assert deleted is not None
    late = FunctionTable()
    late.apply("t/n/f", record(version=2).SerializeToString(), {"requestId": "first2"})
    for table in (reader, late):
        table.apply(*deleted)
        assert table.get("t/n/f") is None


def test_a_request_is_recognised_whatever_others_did_since_also_from_the_last_record_alone() -> None:
    table = FunctionTable()
    lost = FunctionRequest(record(), "lost answer")
    steps = [
        FunctionRequest(record(version=1), "update"),
        FunctionRequest(record(version=2), "deletion", is_deletion=True),
        FunctionRequest(record(created=2), "another creation"),
    ]
    carry_out(table, lost)
    for step in steps:
        entry = carry_out(table, step)
        assert entry is not None
        newcomer = FunctionTable()  # has read the compacted log, which holds this record only
        newcomer.apply(*entry)
        for one in (table, newcomer):
            assert one.decide(lost) is None
            assert one.has_seen(lost)


def test_the_echo_of_a_creation_does_not_bring_a_deleted_function_back() -> None:
    table = FunctionTable()
    created = carry_out(table, FunctionRequest(record(), "a"))
    assert created is not None
    carry_out(table, FunctionRequest(record(version=1), "b", is_deletion=True))
    assert table.apply(*created) is None
    assert table.get("t/n/f") is None


def test_creating_what_exists_is_refused() -> None:
    table = FunctionTable()
    carry_out(table, FunctionRequest(record(), "a"))
    with pytest.raises(FunctionExists, match=r"^Function f already exists$"):
        table.decide(FunctionRequest(record(), "b"))


@pytest.mark.parametrize(("is_deletion", "word"), [(False, "Update"), (True, "Delete")])
def test_a_change_of_an_old_version_is_refused(is_deletion: bool, word: str) -> None:
    table = FunctionTable()
    carry_out(table, FunctionRequest(record(), "a"))
    carry_out(table, FunctionRequest(record(version=1), "b"))
    with pytest.raises(OutOfDate, match=rf"^{word} request ignored because it is out of date. Please try again.$"):
        table.decide(FunctionRequest(record(version=1), "c", is_deletion))


def test_an_update_does_not_bring_a_deleted_function_back() -> None:
    table = FunctionTable()
    carry_out(table, FunctionRequest(record(), "a"))
    carry_out(table, FunctionRequest(record(version=1), "b", is_deletion=True))
    with pytest.raises(OutOfDate):
        table.decide(FunctionRequest(record(version=1), "c"))


def test_an_update_of_the_deleted_function_does_not_hit_its_successor() -> None:
    table = FunctionTable()
    carry_out(table, FunctionRequest(record(created=1), "a"))
    carry_out(table, FunctionRequest(record(version=1, created=1), "b", is_deletion=True))
    carry_out(table, FunctionRequest(record(created=2), "c"))
    with pytest.raises(OutOfDate):
        table.decide(FunctionRequest(record(version=1, created=1), "d"))


def test_a_repeated_request_is_answered_with_success() -> None:
    table = FunctionTable()
    create = FunctionRequest(record(), "a")
    update = FunctionRequest(record(version=1), "b")
    delete = FunctionRequest(record(version=2), "c", is_deletion=True)
    for request in (create, update, delete):
        assert carry_out(table, request) is not None
        assert table.decide(request) is None


def test_deleting_what_is_not_there_is_success() -> None:
    assert FunctionTable().decide(FunctionRequest(record(version=4), "a", is_deletion=True)) is None


@pytest.mark.parametrize(
    ("key", "value", "properties"),
    [
        (None, record().SerializeToString(), {"version": "0"}),
        ("", record().SerializeToString(), {}),
        ("t/n/f", b"\xff\xff\xff", {"version": "0"}),
        ("t/n/g", record().SerializeToString(), {"version": "0"}),
        ("t/n/f", b"", {}),
        ("t/n/f", b"", {"version": "-1"}),
        ("t/n/f", b"", {"version": "²"}),
    ],
)
def test_an_unreadable_record_is_refused_and_changes_nothing(
    key: str | None, value: bytes, properties: dict[str, str]
) -> None:
    table = FunctionTable()
    carry_out(table, FunctionRequest(record(version=0), "a"))
    with pytest.raises(ValueError, match=r"record|deletion"):
        table.apply(key, value, properties)
    assert table.get("t/n/f") == record()


@given(key=st.none() | st.text(), value=st.binary(max_size=60), properties=st.dictionaries(st.text(), st.text()))
def test_no_record_breaks_the_table(key: str | None, value: bytes, properties: dict[str, str]) -> None:
    with contextlib.suppress(ValueError):
        FunctionTable().apply(key, value, properties)


class ManyLeaders(RuleBasedStateMachine):
    """Leaders come and go over one log; requests are repeated and made from old views.

    The model is the plain history: what each accepted request says, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[LogRecord] = []
        self.leader = FunctionTable()
        self.follower = FunctionTable()
        self.follower_at = 0
        self.model: dict[str, FunctionMetaData] = {}
        self.answered: list[FunctionRequest] = []
        self.number = 0

    def submit(self, request: FunctionRequest, *, is_answer_lost: bool = False) -> None:
        entry = self.leader.decide(request)
        if entry is not None:
            self.log.append(entry)
            self.leader.apply(entry.key, entry.value, entry.properties)
            if request.is_deletion:
                del self.model[entry.key]
            else:
                self.model[entry.key] = request.metadata
        if not is_answer_lost:
            self.answered.append(request)

    def next_id(self) -> str:
        self.number += 1
        return str(self.number)

    @rule(name=st.sampled_from("fg"))
    def create(self, name: str) -> None:
        request = FunctionRequest(record(name, created=self.number), self.next_id())
        if f"t/n/{name}" in self.model:
            with pytest.raises(FunctionExists):
                self.submit(request)
        else:
            self.submit(request)

    @rule(name=st.sampled_from("fg"), is_deletion=st.booleans(), from_follower=st.booleans())
    def change(self, name: str, is_deletion: bool, from_follower: bool) -> None:
        view = self.follower if from_follower else self.leader
        seen = view.get(f"t/n/{name}")
        if seen is None:
            return
        changed = record(name, seen.version + 1, seen.createTime, output=self.next_id())
        current = self.model.get(f"t/n/{name}")
        request = FunctionRequest(changed, self.next_id(), is_deletion)
        if current == seen or (current is None and is_deletion):
            self.submit(request)
        else:
            with pytest.raises(OutOfDate):
                self.submit(request)

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def repeat_the_last_request_of_a_function(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.answered[-1:]))
        before = len(self.log)
        self.submit(request)
        assert len(self.log) == before

    @rule()
    def the_leader_dies_and_another_reads_the_log(self) -> None:
        self.leader = FunctionTable()
        for entry in self.log:
            self.leader.apply(entry.key, entry.value, entry.properties)

    @rule(steps=st.integers(1, 3))
    def the_follower_reads_on(self, steps: int) -> None:
        for entry in self.log[self.follower_at : self.follower_at + steps]:
            self.follower.apply(entry.key, entry.value, entry.properties)
        self.follower_at = min(len(self.log), self.follower_at + steps)

    @invariant()
    def the_leader_holds_what_was_accepted(self) -> None:
        assert {fqfn(metadata): metadata for metadata in self.leader.all()} == self.model


TestManyLeaders = ManyLeaders.TestCase
TestManyLeaders.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
