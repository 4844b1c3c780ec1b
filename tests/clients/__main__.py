"""Real peers against a running server: `python -m tests.clients [URL] [--call TOOL --arguments JSON]`.

The official SDK's client of either generation, and the Inspector's command line in both eras, list the tools and
call one. Without a URL the fixtures server is started for them. What they need is kept in the cache directory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.__main__ import fixtures_server
from tests.conformance.npm import cache_directory, installed_tool

LEGACY = "mcp==1.30.0"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
HERE = Path(__file__).parent


def main() -> int:
    options = _options()
    with _server(options) as url:
        legacy, modern = (str(HERE / name) for name in ("legacy_client.py", "modern_client.py"))
        asked = [url, options.call, options.arguments]
        outcomes = [
            _run([_legacy_python(), legacy, *asked]),
            _run([sys.executable, modern, *asked]),
            *(_inspect(era, url, options) for era in ("legacy", "modern")),
        ]
    sys.stdout.write(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed\n")
    return 0 if all(outcomes) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("url", nargs="?", help="a server that runs already; otherwise the fixtures server is started")
    parser.add_argument("--port", type=int, default=18766, help="port for the fixtures server")
    parser.add_argument("--call", default="add_numbers", help="the tool to call")
    parser.add_argument("--arguments", default='{"a": 2, "b": 3}', help="its arguments, as JSON")
    return parser.parse_args()


@contextmanager
def _server(options: argparse.Namespace) -> Iterator[str]:
    if options.url:
        yield options.url
        return
    with fixtures_server(options.port):
        yield f"http://127.0.0.1:{options.port}/mcp"


def _legacy_python() -> str:
    """The interpreter of an environment with the 1.x client in it, made at its first use."""
    home = cache_directory() / "legacy-client"
    python, marker = home / "bin" / "python", home / "installed"
    if not marker.is_file() or marker.read_text() != LEGACY:
        sys.stderr.write(f"Installing {LEGACY} into {home}\n")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", LEGACY]
        run = subprocess.run(install, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"pip could not install {LEGACY}:\n{run.stdout}{run.stderr}")
        marker.write_text(LEGACY)
    return str(python)


def _inspect(era: str, url: str, options: argparse.Namespace) -> bool:
    """The Inspector's command line: list, with its schema report, and call."""
    tool = installed_tool("inspector", INSPECTOR, "mcp-inspector")
    base = [*tool, "--cli", "--server-url", url, "--transport", "http", "--protocol-era", era, "--format", "json"]
    with tempfile.TemporaryDirectory() as home:
        listed = _json([*base, "--method", "tools/list", "--strict"], home)
        arguments = ["--tool-name", options.call, "--tool-args-json", options.arguments]
        called = _json([*base, "--method", "tools/call", *arguments], home)
    if listed is None or called is None:
        return False
    ok = options.call in json.dumps(listed) and '"isError": true' not in json.dumps(called)
    sys.stdout.write(f"Inspector, {era} era: {'tools listed, ' + options.call + ' called' if ok else called}\n")
    return ok


def _json(command: list[str], home: str) -> object | None:
    """What a command printed; None, and what went wrong on the terminal, when it failed."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": home})
    if run.returncode:
        sys.stdout.write(f"{' '.join(command[2:])} ended with {run.returncode}:\n{run.stdout}{run.stderr}\n")
        return None
    result: object = json.loads(run.stdout)
    return result


def _run(command: list[str]) -> bool:
    return subprocess.run(command, timeout=120, cwd=HERE.parents[1]).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
