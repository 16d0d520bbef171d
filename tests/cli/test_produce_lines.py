"""``produce --lines``: every line once, in order, on a real broker; what is wrong with a line is told by its number."""

from __future__ import annotations

import io
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.cli.failure import Failure
from magnetar.cli.main import main
from magnetar.cli.messages import line_reader, send_lines
from magnetar.cli.messages.line_reader import cut_into_lines, group_lines
from magnetar.client.blocking.client import Client
from magnetar.client.config import ConsumerConfig
from magnetar.testing.broker_thread import BrokerThread

from tests.support.pulsar import own_name
from tests.support.servers import COMMAND


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("broker"), max_message_bytes=200_000) as it:
        yield it


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{own_name('lines')}"


class Sent:
    """Sends lines and reads what arrived."""

    def __init__(self, broker: BrokerThread, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.client = Client(broker.service_url)
        self.consumer = self.client.subscribe(topic, "s", ConsumerConfig(initial_position="Earliest"))

    def __call__(self, *flags: str) -> int:
        return main(["produce", self.topic, "--service-url", self.broker.service_url, *flags])

    def received(self, count: int) -> list[bytes]:
        return [self.consumer.receive(20_000).data for _ in range(count)]


@pytest.fixture
def produce(broker: BrokerThread, topic: str) -> Iterator[Sent]:
    sent = Sent(broker, topic)
    yield sent
    sent.client.close()


def test_cutting_knows_every_end_of_a_line_wherever_blocks_end() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(300):
        content = bytes(chance.choices(b"ab\r\n\xff", k=chance.randrange(40)))
        wanted = content.split(b"\n")
        if not wanted[-1]:
            wanted.pop()
        wanted = [line.removesuffix(b"\r") for line in wanted]
        cuts = sorted(chance.randrange(len(content) + 1) for _ in range(chance.randrange(6)))
        blocks = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
        found = [line for lines in cut_into_lines((one for one in blocks if one), "f") for line in lines]
        assert found == wanted, f"seed {seed}: {blocks}"


def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "LINE_BYTES_MAX", 10)
    blocks = iter([b"one\ntwo\nthr", b"eeeeeeee", b"eeeeeeee"])
    with pytest.raises(Failure, match="line 3 of f has more than 10 bytes"):
        list(cut_into_lines(blocks, "f"))


def test_groups_keep_the_bounds_of_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "ENTRY_LINES_MAX", 3)
    monkeypatch.setattr(line_reader, "ENTRY_BYTES_MAX", 10)
    lines = [b"a", b"b", b"c", b"d", b"x" * 20, b"e" * 5, b"f" * 5, b"g" * 5, b"", b""]
    groups = list(group_lines(lines))
    assert [line for group in groups for line in group] == lines
    assert groups == [[b"a", b"b", b"c"], [b"d"], [b"x" * 20], [b"e" * 5, b"f" * 5], [b"g" * 5, b"", b""]]


def test_messages_are_split_only_where_a_separator_is_given(produce: Sent) -> None:
    assert produce("-m", '{"a":1,"b":2}', "-m", "one, two") == 0
    assert produce("-m", "a,b", "-s", ",") == 0
    assert produce.received(4) == [b'{"a":1,"b":2}', b"one, two", b"a", b"b"]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("-k", "key", "-p", "a=b"), ("-db",), ("-r", "1000000")], ids=" ".join)
def test_lines_arrive_as_they_are(
    produce: Sent, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    lines = [b"", b"one", b"\xff\xfe,\0", b"x" * 150_000, b"", b"a,b", *(b"%d" % number for number in range(3000))]
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(lines))
    assert produce("--lines", str(file), *flags) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"{len(lines)} messages successfully produced\n", "")
    assert produce.received(len(lines)) == lines
    file.write_bytes(b"last\n")
    assert produce("--lines", str(file), *flags) == 0
    message = produce.consumer.receive(20_000)
    assert message.data == b"last"
    assert (message.key, message.properties) == (("key", {"a": "b"}) if "-k" in flags else (None, {}))


@pytest.mark.slow
def test_a_line_that_is_too_large_is_named_and_those_before_it_are_there(
    produce: Sent, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"1\n2\n" + b"x" * 300_000 + b"\n4\n")
    assert produce("--lines", str(file)) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"magnetar: line 3 of {file} is too large with 300000 bytes: ")
    assert error.endswith("lines 1 to 2 were sent\n")
    assert produce.received(2) == [b"1", b"2"]


@pytest.mark.slow
def test_a_pipe_is_read_as_it_comes(broker: BrokerThread, produce: Sent) -> None:
    """What is written arrives while the pipe is still open, and an interrupt ends the command at once."""
    command = [*COMMAND, "produce", produce.topic, "--service-url", broker.service_url, "--lines", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\nsecond\nunfinished")
        process.stdin.flush()
        assert produce.received(2) == [b"first", b"second"]
        process.send_signal(2)
        # The pipe stays open until the command has ended: its end would be an ordinary end of the input.
        assert process.wait(timeout=20) == 130
        assert process.stderr is not None
        # The consumer may have a line before the command has its receipt.
        assert re.search(rb"[012] lines were stored", process.stderr.read())


class Terminal(io.StringIO):
    """Standard error that a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal(produce: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a line\n" * 300_000)
    monkeypatch.setattr(send_lines, "SHOW_EVERY_S", 0.0)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert produce("--lines", str(file)) == 0
    shown = terminal.getvalue().split("\r")
    assert len(shown) > 3
    counts = [int(text.split(" ")[0].replace(",", "")) for text in shown[1:]]
    assert counts == sorted(counts)
    assert counts[-1] == 300_000
    assert shown[-1].endswith(" lines/s\n")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-m", "x"), "--messages cannot be combined with --lines"),
        (("-n", "2"), "--num-produce cannot be combined with --lines"),
        (("-s", ";"), "--separator cannot be combined with --lines"),
    ],
    ids=" ".join,
)
def test_flags_of_messages_are_refused_beside_lines(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], words: str
) -> None:
    assert main(["produce", "t", "--lines", "f", *flags]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["none", "."])
def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["produce", "t", "--lines", name]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"magnetar: --lines {name} cannot be read: ")


def test_files_minus_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    from magnetar.cli.messages.produce import read_payloads

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"whole\ninput")))
    assert read_payloads((), ("-",), ",") == [b"whole\ninput"]
    with pytest.raises(Failure, match="can only be read once"):
        read_payloads((), ("-", "-"), ",")


@pytest.mark.slow
def test_a_second_exclusive_consumer_is_told_who_is_there(
    broker: BrokerThread, produce: Sent, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("consume", produce.topic, "-s", "s", "--service-url", broker.service_url)
    assert main([*flags, "--admin-url", "http://127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert f"subscription s of {produce.topic} is in use" in error
    assert "use -t Shared for both" in error


def test_bytes_of_the_shell_that_are_no_text_are_sent_as_they_are() -> None:
    from magnetar.cli.messages.produce import read_payloads

    assert read_payloads(("caf\udce9,b",), (), ",") == [b"caf\xe9", b"b"]
