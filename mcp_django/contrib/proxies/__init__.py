"""Remote servers, passed on: their tools, resources, prompts and completions are served here as they are.

MCP = {
    "CLIENTS": {"github": {"URL": "https://api.example.com/mcp", "AUTH": {"TYPE": "oauth"}}},
    "SERVERS": {"default": {"PROXIES": {"github": {"PERMISSION": "shop.use_github"}}}},
}
"""

from mcp_django.contrib.proxies.proxy import Proxy

__all__ = ["Proxy"]
