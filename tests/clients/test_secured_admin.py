"""`pulsar-admin` at a closed broker, ours and an Apache Pulsar: `make test-clients`.

It is the program of Apache Pulsar's distribution, given a `client.conf` for each case of `secured_cases.py`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients import programs
from tests.clients.secured_cases import ADMIN_CASES, PUBLIC_KEY_ADMIN_CASES, Case
from tests.clients.secured_site import Site

pytestmark = pytest.mark.clients
PROGRAM_TIMEOUT_S = 240.0
PATIENCE_S = 60.0
"""No call takes longer; the first one loads the classes of the program."""
WORDS = (
    ("Authentication required", "authentication"),
    ("Unable to obtain an access token", "authentication"),
    ("Unauthorized to", "authorization"),
    ("Could not complete the operation", "connection"),
)
"""What refused it, by the words of its error."""


def _play(site: Site, kind: str, cases: Mapping[str, Case], directory: Path) -> None:
    lines = []
    for name, case in cases.items():
        file = directory / f"{name}.conf"
        file.write_text(site.client_conf(case))
        namespace = f"sec/{'closed' if case.is_closed else 'open'}"
        lines.append("\t".join((name, str(file), "topics", "list", namespace)) + "\n")
    command = programs.pulsar_admin()
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    seen = {name: found for name, *found in (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)}
    assert set(seen) == set(cases), f"it ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}"
    wrong: dict[str, Any] = {}
    for name, (code, took_s, said) in seen.items():
        result = "ok" if code == "0" else next((meant for word, meant in WORDS if word in said), "unknown")
        expected = cases[name].outcomes("admin", is_pulsar=kind == "pulsar")
        if result not in expected or float(took_s) > PATIENCE_S:
            wrong[name] = (expected, result, took_s, said)
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())


def test_pulsar_admin_is_let_in_or_refused(broker_kind: str, secret_site: Site, tmp_path: Path) -> None:
    _play(secret_site, broker_kind, ADMIN_CASES, tmp_path)


def test_pulsar_admin_is_let_in_or_refused_by_a_public_key(broker_kind: str, public_site: Site, tmp_path: Path) -> None:
    _play(public_site, broker_kind, PUBLIC_KEY_ADMIN_CASES, tmp_path)
