"""`standalone --local-token`: who can read the data directory may ask, and commands do it by themselves."""

from __future__ import annotations

import stat
from pathlib import Path

import httpx
import pytest
from magnetar.security.local_token import ADDRESSES_FILE, TOKEN_FILE, local_token_of

from tests.support.command import call
from tests.support.servers import server

HERE = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")


def test_token_is_shown_to_the_addresses_of_its_server_only(tmp_path: Path) -> None:
    assert local_token_of(tmp_path, HERE) == {}
    (tmp_path / TOKEN_FILE).write_text("token")
    assert local_token_of(tmp_path, HERE) == {}
    (tmp_path / ADDRESSES_FILE).write_text("\n".join(HERE))
    shown = {"auth_plugin": "token", "auth_params": (tmp_path / TOKEN_FILE).as_uri()}
    assert local_token_of(tmp_path, HERE) == local_token_of(tmp_path, ("http://127.0.0.1:8080/",)) == shown
    for other in ("http://127.0.0.1:8081", "http://localhost:8080", "https://127.0.0.1:8080", "http://10.0.0.1:8080"):
        assert local_token_of(tmp_path, (other,)) == {}
        assert local_token_of(tmp_path, (*HERE, other)) == {}
    (tmp_path / ADDRESSES_FILE).write_bytes(b"\xff")
    assert local_token_of(tmp_path, HERE) == {}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_standalone_takes_its_token_and_commands_show_it(tmp_path: Path) -> None:
    it = server("standalone", tmp_path, "--local-token")
    it.start()
    try:
        addresses = ("--admin-url", it.web_url, "--service-url", it.service_url)
        data = tmp_path / "data"
        assert httpx.get(f"{it.web_url}/admin/v2/tenants").status_code == 401
        assert call(*addresses, "tenants", "list").code != 0
        assert "public" in call(*addresses, "tenants", "list", data_dir=data).out
        assert call(*addresses, "produce", "t", "-m", "hello", data_dir=data).code == 0
        token = (data / TOKEN_FILE).read_text()
        assert stat.S_IMODE((data / TOKEN_FILE).stat().st_mode) == 0o600
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{it.web_url}/admin/v2/tenants", headers=headers).status_code == 200
        assert it.stop() == 0
        it.start()
        assert httpx.get(f"{it.web_url}/admin/v2/tenants", headers=headers).status_code == 401  # of an earlier life
        assert "public" in call(*addresses, "tenants", "list", data_dir=data).out
    finally:
        it.stop()


def test_local_token_and_settings_of_authentication_contradict_each_other(tmp_path: Path) -> None:
    config = tmp_path / "standalone.yml"
    config.write_text("authenticationEnabled: true\n")
    flags = ("--local-token", "--config", str(config), "--data-dir", str(tmp_path / "data"))
    call("standalone", *flags).refused(
        "--local-token cannot be combined with authentication settings in the --config file"
    )
