"""The fixtures server over stdio, as a client starts it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_django.schema.host_rules import HostReaction, find_host_findings

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


def test_over_stdio_the_server_writes_only_messages_and_ends_with_its_client() -> None:
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
    command = [sys.executable, "-m", "tests.conformance.server", "--stdio"]
    run = subprocess.run(command, cwd=ROOT, input=message + "\n", capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    (answer,) = [json.loads(line) for line in run.stdout.splitlines()]
    assert answer["result"]["serverInfo"]["name"] == "fixtures"


def test_no_host_refuses_the_tools_of_the_fixtures() -> None:
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    sent = "".join(f"{json.dumps(message)}\n" for message in messages)
    command = [sys.executable, "-m", "tests.conformance.server", "--stdio"]
    run = subprocess.run(command, cwd=ROOT, input=sent, capture_output=True, text=True, timeout=60)
    answers = {answer.get("id"): answer for answer in map(json.loads, run.stdout.splitlines())}
    tools = answers[2]["result"]["tools"]
    assert len(tools) > 30
    refused = [
        (one.tool, one.rule.name) for one in find_host_findings(tools) if one.rule.reaction is HostReaction.REFUSES
    ]
    # The suite wants this keyword.
    assert refused == [("json_schema_2020_12_tool", "root-alternatives")]


def test_make_runs_the_server_over_stdio_with_the_option() -> None:
    for variables, expected in ((["STDIO=1"], "--stdio"), (["STDIO=0"], "--port 8765"), ([], "--port 8765")):
        command = ["make", "--no-print-directory", "--dry-run", *variables, "serve-fixtures"]
        output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
        assert f"tests.conformance.server {expected}" in output
