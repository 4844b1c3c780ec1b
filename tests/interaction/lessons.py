"""Servers with skills: for all callers, behind a permission, behind a scope; mounted, and passed on."""

from pathlib import Path
from typing import Any

import httpx2
from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount
from mcp_django.client import StreamableHTTP
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.contrib.skills import Skills

SERVER = "lessons"
FOLDER = Path(__file__).parents[1] / "conformance" / "skills"

open_skills = Skills(FOLDER, prefix="open")
scoped_skills = Skills(FOLDER, prefix="scoped", scopes=["panels:write"])
secret_skills = Skills(FOLDER, prefix="secret", permission="auth.delete_user")


def create_proxy() -> Proxy:
    """Return a proxy of this server, which is reached over HTTP as root."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        # Mounted at the request: the servers are being created now.
        await mount(get_asgi_application())(scope, receive, send)

    headers = {"Authorization": "Bearer root"}
    target = StreamableHTTP(f"http://127.0.0.1/mcp/{SERVER}", headers=headers, transport=httpx2.ASGITransport(serve))
    source = TargetSource("r", target, protocol_version="stateless", max_retries=0)
    return Proxy(source, permission="any", uri_prefix="r")
