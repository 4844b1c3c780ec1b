"""The tutorial, run as a reader runs it: its commands in one shell, its files in an empty directory."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.pages import ROOT

pytestmark = pytest.mark.integration
PAGE = ROOT / "docs/start/tutorial.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)(, at the end)?\n")
SETUP = ("python3 -m venv", ". .venv/bin/activate", "pip install")
"""Commands for which the environment of the tests stands in."""
TIMEOUT_SECONDS = 120


def build_script(page: str, port: int) -> str:
    """Build a shell script from the blocks of a page."""
    lines = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for kind, text in BLOCK.findall(page):
        if kind == "sh":
            lines.append("\n".join(line for line in text.splitlines() if not line.startswith(SETUP)))
            continue
        file = FILE.match(text)
        assert file, f"the block names no file: {text[:60]}"
        lines.append(f"cat {'>>' if file[2] else '>'} {file[1]} <<'END_OF_FILE'\n{text}END_OF_FILE")
    return "\n".join(lines).replace("8000", str(port))


def test_the_tutorial_leads_to_a_server_that_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    script = build_script(PAGE.read_text(encoding="utf-8"), port)
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
