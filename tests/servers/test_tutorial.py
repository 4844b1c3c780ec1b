"""The tutorial, run as a reader runs it: its commands in one shell, its files in an empty directory."""

import sys
from pathlib import Path

import pytest

from scripts.distributions import build_distributions
from scripts.tutorial_matrix import follow_tutorial

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_the_tutorial_builds_a_server_for_clients_of_both_eras_from_a_wheel(tmp_path: Path) -> None:
    build_distributions(tmp_path / "dist", "1700000000")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run = follow_tutorial(wheel, sys.executable, "5.2", tmp_path / "tutorial", clients=sys.executable)

    assert run.returncode == 0, run.stdout
    assert '"name": "Green tea"' in run.stdout  # mcp_call
    assert "[hidden: lacks the permission shop.change_product]" in run.stdout  # mcp_inspect
    assert '{"status":"ok"}' in run.stdout  # the health check
    assert "Ran 2 tests" in run.stdout
    assert '"structuredContent":{"items":[{"pk":1,"name":"Green tea"' in run.stdout  # curl
    configuration = (tmp_path / "tutorial/shop/.mcp.json").read_text(encoding="utf-8")
    assert "Bearer ${SHOP_TOKEN}" in configuration
    for client in ("call_by_official_client", "call_by_own_client"):
        for era in ("handshake", "stateless"):
            assert f"{client}, {era}: found the green tea" in run.stdout
