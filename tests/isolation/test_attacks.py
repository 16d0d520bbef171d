"""Attacks of user code on others: each is tried by a function on a worker that isolates it, and fails."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

import httpx
import psutil
import pytest
from magnetar.instance.system_user import SystemUser

from tests.support.isolated import MARKERS, Deployed, Run, data_of, processes
from tests.support.servers import Server, is_alive
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def others(isolated: Server, one: Deployed, two: Deployed) -> dict[int, str]:
    """All processes but those of the tenant that attacks."""
    found = processes(isolated)
    return {pid: title for pid, title in found.items() if "instance one/" not in title}


def test_no_other_process_can_be_signalled_or_traced(run: Run, others: dict[int, str]) -> None:
    assert len(others) >= 5, others
    answer = run(f"""
        import ctypes, os, signal
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        libc, done = ctypes.CDLL(None, use_errno=True), []
        for pid in {list(others)}:
            for number in (0, signal.SIGSTOP, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                    done.append([pid, "signal", int(number)])
                except PermissionError:
                    pass
            if libc.ptrace(16, pid, None, None) == 0:
                done.append([pid, "ptrace"])
        result = done
    """)
    assert answer == []


def test_no_other_process_can_be_looked_into(run: Run, others: dict[int, str]) -> None:
    answer = run(f"""
        import os
        seen = []
        for pid in {list(others)}:
            for name in ("environ", "mem", "maps", "auxv", "stack"):
                try:
                    with open(f"/proc/{{pid}}/{{name}}", "rb") as file:
                        file.read(1)
                    seen.append([pid, name])
                except OSError:
                    pass
            for name in ("fd", "cwd", "root", "exe"):
                try:
                    os.listdir(f"/proc/{{pid}}/fd") if name == "fd" else os.readlink(f"/proc/{{pid}}/{{name}}")
                    seen.append([pid, name])
                except OSError:
                    pass
        result = seen
    """)
    assert answer == []


def test_function_of_the_same_tenant_cannot_be_looked_into(one: Deployed, run: Run) -> None:
    one.deploy("sibling")
    pid = one.run("sibling", "import os; result = os.getpid()")
    for name in ("environ", "mem", "maps"):
        assert "PermissionError" in run(f"open('/proc/{pid}/{name}', 'rb').read(1)")


def test_files_of_broker_worker_and_other_tenants_are_closed(
    run: Run, isolated: Server, users: tuple[SystemUser, SystemUser]
) -> None:
    everything = [str(path) for path in data_of(isolated).rglob("*") if not path.is_symlink()]
    files = [path for path in everything if Path(path).is_file() or Path(path).is_socket()]
    directories = [path for path in everything if Path(path).is_dir()] + [str(data_of(isolated))]
    assert any("metadata.sqlite" in path for path in files)
    assert any("/packages/" in path for path in files)
    opened, listed, made = run(f"""
        import os, socket
        opened, listed, made = [], [], []
        for path in {files!r}:
            for flags in (os.O_RDONLY, os.O_WRONLY | os.O_NONBLOCK):
                try:
                    os.close(os.open(path, flags))
                    opened.append([path, flags != 0])
                except OSError:
                    pass
            try:
                socket.socket(socket.AF_UNIX).connect(path)
                opened.append([path, True])
            except OSError:
                pass
        for path in {directories!r}:
            try:
                os.listdir(path)
                listed.append(path)
            except OSError:
                pass
            try:
                with open(os.path.join(path, "made-by-attack"), "x"):
                    made.append(path)
                os.unlink(os.path.join(path, "made-by-attack"))
            except OSError:
                pass
        result = [opened, listed, made]
    """)
    worker = data_of(isolated) / "worker"
    readable = (f"{worker}/users/{users[0].uid}/", f"{worker}/logs/functions/one/code/", f"{worker}/run/")
    assert not [path for path, _ in opened if not path.startswith(readable)]
    assert not [path for path, is_written in opened if is_written and path.startswith(readable[0])]
    assert not [path for path in listed if not f"{path}/".startswith(readable) or path.rpartition("/")[2] == "run"]
    assert not [path for path in made if not path.startswith(readable[1:])]
    own = [path for path in (*listed, *made, *(path for path, _ in opened)) if path.startswith(readable[2])]
    assert {Path(path).relative_to(worker).parts[2] for path in own} <= _instances_of(users[0], worker), own


def _instances_of(user: SystemUser, worker: Path) -> set[str]:
    return {found.name for found in (worker / "run").glob("*/*") if found.stat().st_uid == user.uid}


def test_package_of_another_tenant_cannot_be_read_even_by_its_path(run: Run, two: Deployed, isolated: Server) -> None:
    two.deploy("owned", "SECRET = 'of two'\ndef process(input):\n    return SECRET\n")
    copies = list(data_of(isolated).rglob("owned.py"))
    assert len(copies) == 2, "one in the store, and one for the tenant's user"
    for path in copies:
        assert "PermissionError" in run(f"open({str(path)!r})")


def test_package_cannot_be_changed_by_its_own_function(run: Run) -> None:
    answer = run("""
        import os, sys
        place = os.path.dirname(sys.modules[[name for name in sys.modules if name.endswith("obeys")][0]].__file__)
        result = []
        for attempt in (lambda: open(os.path.join(place, "obeys.py"), "a"),
                        lambda: open(os.path.join(place, "x.py"), "w"),
                        lambda: os.rename(place, place + "x"), lambda: os.chmod(place, 0o777)):
            try:
                attempt()
                result.append("done")
            except OSError as error:
                result.append(type(error).__name__)
    """)
    assert "done" not in answer, answer


@pytest.mark.parametrize("kind", ["symlink", "hard link", "fifo", "directory"])
def test_log_that_is_no_log_is_not_read_by_the_worker(one: Deployed, open_directory: Path, kind: str) -> None:
    name, secret = f"log{kind[:4].strip()}", open_directory / f"secret-{kind[:4].strip()}"
    secret.write_text("only root reads this\n")
    secret.chmod(0o600)
    one.deploy(name)
    log = f"/proc/self/cwd/../../../logs/functions/one/code/{name}/{name}-0.log"
    done = one.run(
        name,
        f"""
        import os
        os.rename({log!r}, {log!r} + "x")
        kind = {kind!r}
        try:
            if kind == "symlink":
                os.symlink({str(secret)!r}, {log!r})
            elif kind == "hard link":
                os.link({str(secret)!r}, {log!r})
            elif kind == "fifo":
                os.mkfifo({log!r})
            else:
                os.mkdir({log!r})
            result = "made"
        except OSError as error:
            result = "refused"
        """,
    )
    assert done == "made" or kind == "hard link"
    shown = one.http.get(f"{name}/0/logs", timeout=20)
    assert "only root" not in shown.text
    one.end(name, "import os; os.write(1, b'last words'); os._exit(9)")  # the worker writes those into the log
    assert secret.read_text() == "only root reads this\n"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.stat().st_uid == 0
    one.http.delete(name).raise_for_status()
    assert secret.exists()


def test_directory_of_a_process_is_removed_without_following_what_lies_in_it(
    one: Deployed, open_directory: Path, isolated: Server
) -> None:
    kept = open_directory / "kept"
    kept.mkdir()
    (kept / "file").write_text("stays")
    one.deploy("litters")
    home = one.run(
        "litters",
        f"""
        import os
        os.symlink({str(kept)!r}, "link")
        os.symlink("/etc/passwd", "passwd")
        os.mkfifo("fifo")
        os.mkdir("closed"); open("closed/x", "w").close(); os.chmod("closed", 0)
        descriptor = os.open(".", os.O_RDONLY)
        for level in range(3000):
            os.mkdir("d", dir_fd=descriptor)
            below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        result = os.getcwd()
        """,
    )
    assert Path(home).is_dir()
    before = os.stat("/etc/passwd")
    one.http.delete("litters").raise_for_status()
    wait_for(lambda: not Path(home).exists(), f"removal of {home}", 30)
    assert (kept / "file").read_text() == "stays"
    assert os.stat("/etc/passwd") == before


def test_process_that_hides_whose_it_is_ends_with_its_instance(one: Deployed, users: tuple[SystemUser, ...]) -> None:
    one.deploy("hides")
    token = uuid.uuid4().hex
    one.run(
        "hides",
        f"""
        import os, resource, subprocess, sys
        code = ("import os, resource, time\\n"
                "if os.fork(): os._exit(0)\\n"
                "os.setsid()\\n"
                "if os.fork(): os._exit(0)\\n"
                "resource.setrlimit(10, (7, 7))\\n"
                "time.sleep(600)  # {token}\\n")
        subprocess.run([sys.executable, "-c", code])
        """,
    )
    wait_for(lambda: len(_with(token)) == 1, "process that hides", 10)
    one.http.delete("hides").raise_for_status()
    wait_for(lambda: not _with(token), "end of the process that hides", 30)


def _with(token: str) -> list[int]:
    """Processes that have something in their command lines."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if token in " ".join(one.info["cmdline"] or ())]


def test_instances_end_with_what_forked_them(two: Deployed, isolated: Server) -> None:
    two.deploy("lives")
    pid = two.run("lives", "import os; result = os.getpid()")
    (zygote,) = (number for number, title in processes(isolated).items() if "magnetar zygote" in title)
    psutil.Process(zygote).kill()
    wait_for(lambda: not is_alive(psutil.Process(pid)) if psutil.pid_exists(pid) else True, "end of the instance", 5)
    wait_for(lambda: two.status("lives")["running"] and two.run("lives", "result = 1") == 1, "a new one", 30)


def test_files_in_shared_places_are_closed_to_other_tenants(run: Run, two: Deployed) -> None:
    path = f"/dev/shm/{uuid.uuid4().hex}"
    run(f"open({path!r}, 'w').write('of one')")
    assert "PermissionError" in two.run("obeys", f"open({path!r})")
    assert run(f"import os; os.unlink({path!r})") is None


def test_instance_still_serves_after_all_of_that(run: Run, isolated: Server) -> None:
    assert run("result = 1 + 1") == 2
    assert httpx.get(f"{isolated.worker_url}/metrics").status_code == 200
    assert MARKERS["environment"] not in isolated.log_tail()
