"""The tutorial, run as a reader runs it: its commands in one shell, its files in an empty directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.distributions import build_distributions
from scripts.tutorial_matrix import PAGE, build_script, find_free_port, follow_tutorial
from tests.repository.pages import ROOT

pytestmark = pytest.mark.integration
SETUP = ("python3 -m venv", ". .venv/bin/activate", "pip install")
"""Commands for which the environment of the tests stands in."""
TIMEOUT_SECONDS = 300


def test_the_tutorial_leads_to_a_server_that_answers(tmp_path: Path) -> None:
    script = build_script(PAGE.read_text(encoding="utf-8"), find_free_port(), skip=SETUP)
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }

    run = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert '"name": "Green tea"' in run.stdout  # mcp_call
    assert "[hidden: lacks the permission shop.change_product]" in run.stdout  # mcp_inspect
    assert '{"status":"ok"}' in run.stdout  # the health check
    assert "Ran 2 tests" in run.stderr
    assert '"structuredContent":{"items":[{"pk":1,"name":"Green tea"' in run.stdout  # curl
    assert "Bearer ${SHOP_TOKEN}" in (tmp_path / ".mcp.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_serves_both_clients_in_both_eras_from_an_empty_environment(tmp_path: Path) -> None:
    build_distributions(tmp_path / "dist", "1700000000")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run = follow_tutorial(wheel, sys.executable, "5.2", tmp_path / "tutorial")
    assert run.returncode == 0, run.stdout
    for client in ("call_by_official_client", "call_by_own_client"):
        for era in ("handshake", "stateless"):
            assert f"{client}, {era}: found the green tea" in run.stdout
