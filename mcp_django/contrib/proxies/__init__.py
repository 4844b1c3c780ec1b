"""Proxies: primitives of remote servers, served unchanged.

MCP = {
    "CLIENTS": {"github": {"URL": "https://api.example.com/mcp", "AUTH": {"TYPE": "oauth"}}},
    "SERVERS": {"default": {"PROXIES": {"github": {"PERMISSION": "shop.use_github"}}}},
}
"""

from mcp_django.contrib.proxies.proxy import Proxy

__all__ = ["Proxy"]
