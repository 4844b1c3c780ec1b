"""A strict host on the official bridge of MCP Apps, served from two origins, and a collector of stolen requests.

The host page is on 127.0.0.1 and the sandbox on localhost: cookies are shared by the ports of one name, not by names.
"""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.conformance.npm import installed_files

FOLDER = Path(__file__).parent
PACKAGES = "@modelcontextprotocol/ext-apps@2.0.4 @modelcontextprotocol/client@2.4.0 esbuild@0.28.2"
NONE = "'none'"
SECRET = "secret-of-the-host"
HOST_PAGE = f"""<!doctype html><html><head><meta charset="utf-8"><title>Strict host</title></head>
<body><p>{SECRET}</p><script>localStorage.secret = document.cookie = "secret={SECRET}"</script>
<script type="module" src="/host.js"></script></body></html>"""


def build_bundle() -> bytes:
    """Bundle the host's script with the official packages."""
    home = installed_files("strict-host", PACKAGES)
    source = home / "host.mjs"
    shutil.copy(FOLDER / "host.mjs", source)
    command = [str(home / "node_modules/.bin/esbuild"), str(source), "--bundle", "--format=esm", "--target=es2022"]
    return subprocess.run([*command, "--log-level=error"], capture_output=True, check=True, timeout=120).stdout


def build_default_policy(csp: dict[str, list[str]]) -> str:
    """The policy of the specification, from the declared origins alone."""
    resources, connect = (" ".join(csp.get(name, [])) for name in ("resourceDomains", "connectDomains"))
    frames, bases = (" ".join(csp.get(name, [])) for name in ("frameDomains", "baseUriDomains"))
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' 'unsafe-inline' {resources}",
            f"style-src 'self' 'unsafe-inline' {resources}",
            f"img-src 'self' data: {resources}",
            f"media-src 'self' data: {resources}",
            f"font-src {resources or NONE}",
            f"connect-src {connect or NONE}",
            f"frame-src {frames or NONE}",
            f"base-uri {bases or NONE}",
            "object-src 'none'",
            "form-action 'none'",
        ]
    )


class StrictHostServer(ThreadingHTTPServer):
    """The pages of the host, and the requests that reached the collector."""

    bundle: bytes
    collected: list[str]
    block_on_close = False

    @property
    def host_origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def sandbox_origin(self) -> str:
        return f"http://localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: StrictHostServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        on_host = self.headers.get("Host", "").startswith("127.0.0.1")
        if parts.path.startswith("/collect"):
            self.server.collected.append(f"{self.command} {self.path}")
            self.respond(200, "text/plain", b"collected")
        elif parts.path == "/" and on_host:
            self.respond(200, "text/html", HOST_PAGE.encode())
        elif parts.path == "/host.js" and on_host:
            self.respond(200, "text/javascript", self.server.bundle)
        elif parts.path == "/lax.html" and not on_host:
            self.respond(200, "text/html", (FOLDER / "sandbox.html").read_bytes())
        elif parts.path == "/sandbox.html" and not on_host:
            csp: dict[str, Any] = json.loads(parse_qs(parts.query)["csp"][0])
            policy = build_default_policy(csp)
            self.respond(200, "text/html", (FOLDER / "sandbox.html").read_bytes(), {"Content-Security-Policy": policy})
        else:
            self.respond(404, "text/plain", b"")

    def do_POST(self) -> None:
        self.do_GET()

    def respond(self, status: int, content_type: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serve_strict_host(bundle: bytes = b"") -> Iterator[StrictHostServer]:
    """Serve the host until the block ends."""
    server = StrictHostServer(("127.0.0.1", 0), _Handler)
    server.bundle = bundle
    server.collected = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
