"""The Inspector's web client, a host of apps by others."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.clients.peers import INSPECTOR
from tests.conformance.npm import installed_tool
from tests.support.ports import take_port

TOKEN = "token-of-the-tests"
INSPECTOR_VARIABLE = "APPS_IN_THE_INSPECTOR"
"""Variable with which the tests for any host use the Inspector alone."""


class InspectorServer(NamedTuple):
    """The Inspector that is being served."""

    url: str


@contextmanager
def serve_inspector(home: Path) -> Iterator[InspectorServer]:
    """Serve the Inspector until the block ends, with its files in `home`."""
    port, sandbox_port = take_port(), take_port()
    variables = {
        **os.environ,
        "HOME": str(home),
        "HOST": "127.0.0.1",
        "CLIENT_PORT": str(port),
        "MCP_SANDBOX_PORT": str(sandbox_port),
        "MCP_AUTO_OPEN_ENABLED": "false",
        "MCP_INSPECTOR_API_TOKEN": TOKEN,
        "MCP_INSPECTOR_SECRET_STORE": "memory",
    }
    command = installed_tool("inspector", INSPECTOR, "mcp-inspector")
    with subprocess.Popen(
        command, cwd=home, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            output = ""
            for line in process.stdout:
                output += line
                if "Auth token" in line:
                    break
            assert f"127.0.0.1:{port}" in output, output
            yield InspectorServer(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.communicate()
