"""Children made by fork, each looked at from a fresh interpreter: the one that runs the tests has threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import asyncio, fcntl, os, socket, sys, threading, time
from magnetar.runtime.process.forked import can_fork, fork

def said(process):
    async def talk():
        reader, writer = await process.attach()
        try:
            return (await reader.read()).decode(), await process.wait(), process.returncode
        finally:
            writer.close()
    return asyncio.run(talk())
"""


def output_of(body: str, *arguments: str) -> str:
    command = [sys.executable, "-c", PRELUDE + body, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_child_talks_through_its_socket_and_its_exit_code_arrives() -> None:
    body = """
def child(channel):
    channel.sendall(f"{'json' in sys.modules} {os.getppid()}".encode())
    return 7

import json
process = fork(child)
print(*said(process), os.getpid())
"""
    shared, parent, code, again, own_id = output_of(body).split()
    assert shared == "True"
    assert parent == own_id
    assert code == again == "7"


@pytest.mark.parametrize(("method", "code"), [("terminate", "-15"), ("kill", "-9")])
def test_child_is_ended_by_a_signal_and_says_which(method: str, code: str) -> None:
    body = f"""
async def end(process):
    reader, writer = await process.attach()
    assert await reader.read(2) == b"up"
    process.{method}()
    print(await process.wait())
    process.{method}()  # nothing is left that could be meant
    writer.close()

def child(channel):
    channel.sendall(b"up")
    time.sleep(60)

asyncio.run(end(fork(child)))
"""
    assert output_of(body) == code


def test_child_that_ended_before_it_is_watched_is_reported() -> None:
    body = """
process = fork(lambda channel: 3)
os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
print(*said(process))
"""
    assert output_of(body).split() == ["3", "3"]


def test_child_whose_end_somebody_else_took_note_of_is_reported() -> None:
    """As a thread function does that calls os.wait."""
    body = """
async def end(process):
    _, writer = await process.attach()
    os.wait()
    print(await asyncio.wait_for(process.wait(), 60))
    process.kill()
    writer.close()

asyncio.run(end(fork(lambda channel: 3)))
"""
    assert output_of(body) == "255"


def test_child_keeps_no_file_of_its_parent(tmp_path: Path) -> None:
    """A lock that the parent gives back would otherwise be held by the child; a second child would hold the first."""
    body = """
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)

def child(channel):
    channel.sendall(",".join(str(n) for n in range(3, 100) if is_open(n) and n != channel.fileno()).encode() + b";")
    channel.recv(1)
    return 0

def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True

first, second = fork(child), fork(child)

async def talk():
    streams = [await process.attach() for process in (first, second)]
    for reader, _ in streams:
        print((await reader.readuntil(b";")).decode())  # from here on it has closed what it inherited
    os.close(lock)
    fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
    for process, (_, writer) in ((first, streams[0]), (second, streams[1])):
        writer.close()
        print(await process.wait())  # the other holds no end of its socket: it has seen the end of file

asyncio.run(talk())
"""
    assert output_of(body, str(tmp_path / "lock")).split() == [";", ";", "0", "0"]


def test_process_with_a_second_thread_does_not_fork() -> None:
    body = """
print(can_fork())
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
print(can_fork())
end.set()
"""
    assert output_of(body).split() == ["True", "False"]


def test_process_without_standard_streams_does_not_fork() -> None:
    assert output_of("sys.stdin = None\nprint(can_fork())") == "False"
