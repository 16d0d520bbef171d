"""What the process of an isolated instance is, has and knows: asked of the process itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.instance.system_user import SystemUser

from tests.support.isolated import MARKERS, Deployed, Run, data_of, processes
from tests.support.servers import Server

pytestmark = pytest.mark.slow

SEE_ITSELF = "import ctypes; ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)"
"""PR_SET_DUMPABLE: it may allow others of its user to look into it, and so itself."""
SCAN = f"""
    {SEE_ITSELF}
    def count(parts):
        begin_of_it, end_of_it = (part.encode() for part in parts)
        found = 0
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for line in maps:
                place, rights, *rest = line.split()
                if not rights.startswith("r") or rest[-1] in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
                    continue
                begin, end = (int(one, 16) for one in place.split("-"))
                try:
                    memory.seek(begin)
                    content = memory.read(end - begin)
                except OSError:
                    continue
                at = content.find(end_of_it)
                while at >= 0:
                    found += content[max(0, at - len(begin_of_it)):at] == begin_of_it
                    at = content.find(end_of_it, at + 1)
        return found
"""


def halves(marker: str) -> list[str]:
    """A marker in two parts: whoever looks for it must not have it in memory by that."""
    return [marker[:-12], marker[-12:]]


def test_instance_is_only_its_tenants_user(run: Run, two: Deployed, users: tuple[SystemUser, SystemUser]) -> None:
    ask = """
        import os
        status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
        held = [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")]
        result = [os.getresuid(), os.getresgid(), os.getgroups(), held, int(status["NoNewPrivs"])]
    """
    for answer, user in ((run(ask), users[0]), (two.run("obeys", ask), users[1])):
        assert answer == [[user.uid] * 3, [user.gid] * 3, [], [0] * 4, 1]


@pytest.mark.parametrize("call", ["setuid(0)", "setresuid(-1, 0, -1)", "setgid(0)", "setgroups([0])", "seteuid(0)"])
def test_instance_cannot_become_root_again(run: Run, call: str) -> None:
    assert "PermissionError" in run(f"import os; os.{call}")


def test_instance_gets_no_more_memory_dumps_and_closed_files_by_default(run: Run) -> None:
    answer = run("""
        import os, resource
        with open("made", "w"): pass
        modes = [os.stat(name).st_mode & 0o777 for name in ("made", ".")]
        result = [resource.getrlimit(resource.RLIMIT_CORE), *modes]
    """)
    assert answer == [[0, 0], 0o600, 0o700]


def test_instance_has_no_environment_of_its_worker(run: Run, isolated: Server) -> None:
    assert MARKERS["environment"].encode() in Path(f"/proc/{isolated.pid}/environ").read_bytes()
    environment, initial, home = run(f"""
        import os
        {SEE_ITSELF}
        result = [dict(os.environ), open("/proc/self/environ").read(), os.getcwd()]
    """)
    kept = {name for name in environment if not name.startswith(("LC_", "PYTHON"))}
    assert kept <= {"PATH", "LANG", "LANGUAGE", "TZ", "HOME", "TMPDIR", "USER", "LOGNAME"}
    assert environment["HOME"] == environment["TMPDIR"] == home
    assert MARKERS["environment"] not in initial


def test_instance_holds_only_files_of_its_own(run: Run, isolated: Server) -> None:
    links, peers, home = run(f"""
        import os, socket
        {SEE_ITSELF}
        links, peers = [], []
        for name in os.listdir("/proc/self/fd"):
            try:
                link = os.readlink(f"/proc/self/fd/{{name}}")
            except OSError:
                continue
            links.append(link)
            if link.startswith("socket:"):
                it = socket.socket(fileno=os.dup(int(name)))
                try:
                    peers.append([int(it.family), str(it.getsockname()), str(it.getpeername())])
                except OSError:
                    peers.append([int(it.family), str(it.getsockname()), ""])
                it.close()
        result = [links, peers, os.getcwd()]
    """)
    files = {link for link in links if link.startswith("/") and link != "/dev/null"}
    data = str(data_of(isolated))
    assert not {link for link in files if link.startswith(data) and "/logs/functions/one/code/" not in link}, files
    assert not {link for link in files if "memfd" in link or link.startswith("/dev/tty")}, files
    unix = [(own, peer) for family, own, peer in peers if family == 1]
    assert all(own in ("", f"{home}/sock") and not peer.startswith("/") for own, peer in unix), unix


def test_memory_of_an_instance_has_nothing_of_others(one: Deployed, two: Deployed, isolated: Server) -> None:
    # The other one is started first, says something just before its end, is examined and started again.
    two.deploy("keeper", userConfig={"password": MARKERS["secret"]}, secrets={"a": {"key": MARKERS["secret"]}})
    own = f"{SCAN}    result = count({halves(MARKERS['secret'])!r})"
    assert two.run("keeper", own) > 0, "the scan finds what is there"
    two.end("keeper", f"import os; os.write(1, b'{MARKERS['said']}'); os._exit(3)")
    one.deploy("scans")
    for kind, marker in MARKERS.items():
        found = one.run("scans", f"{SCAN}    result = count({halves(marker)!r})")
        assert found == 0, f"{found} times the marker of the {kind}"


def test_memory_of_what_forks_instances_has_nothing_of_any(two: Deployed, isolated: Server) -> None:
    two.deploy("told", userConfig={"password": MARKERS["secret"]}, secrets={"a": {"key": MARKERS["secret"]}})
    two.end("told", f"import os; os.write(1, b'{MARKERS['said']}'); os._exit(3)")
    (zygote,) = (pid for pid, title in processes(isolated).items() if "magnetar zygote" in title)
    (worker,) = (pid for pid, title in processes(isolated).items() if "magnetar worker" in title)
    assert MARKERS["settings"].encode() in memory_of(worker), "it is found where it is"
    content = memory_of(zygote)
    assert not [kind for kind, marker in MARKERS.items() if marker.encode() in content]


def memory_of(pid: int) -> bytes:
    """What a process has in its memory, as root sees it."""
    pieces = []
    with Path(f"/proc/{pid}/maps").open() as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            begin, end = (int(one, 16) for one in line.split()[0].split("-"))
            try:
                memory.seek(begin)
                pieces.append(memory.read(end - begin))
            except (OSError, ValueError, OverflowError):
                continue
    return b"".join(pieces)


def test_secrets_of_a_provider_come_without_the_provider(one: Deployed) -> None:
    one.deploy("asks", secrets={"password": {"key": "value"}})
    answer = one.run(
        "asks", f"{SCAN}    result = [context.get_secret('password'), count({halves(MARKERS['settings'])!r})]"
    )
    assert answer == ["value for password", 0]
