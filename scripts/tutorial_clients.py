"""Call the tutorial's server with real clients, in both eras: the official SDK's client, and the one of this package.

usage: scripts/tutorial_clients.py URL          SHOP_TOKEN is the personal token of the tutorial

The extra `client` is required. The tutorial's server has to be running.
"""

import asyncio
import os
import sys
from typing import Any

import httpx2
from mcp import Client as OfficialClient
from mcp.client.streamable_http import streamable_http_client

from mcp_django.client import Client, StreamableHTTP

ERAS = {"handshake": "legacy", "stateless": "auto"}
"""Each era, and the SDK's name for clients that prefer it."""
ARGUMENTS = {"search": "tea", "filters": {"stock__gt": 0}}


async def call_by_official_client(url: str, headers: dict[str, str], era: str) -> tuple[set[str], Any]:
    """Return the names of the tools and the structured result of a call, by the client of the official SDK."""
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        OfficialClient(streamable_http_client(url, http_client=http), mode=ERAS[era]) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        return names, (await client.call_tool("product_list", ARGUMENTS)).structured_content


async def call_by_own_client(url: str, headers: dict[str, str], era: str) -> tuple[set[str], Any]:
    """Return the same by the client of this package."""
    async with Client(StreamableHTTP(url, headers=headers), protocol_version=era) as client:
        names = {tool.name for tool in await client.list_tools()}
        return names, (await client.call_tool("product_list", ARGUMENTS)).structured_content


async def main() -> None:
    """Compare the results of both clients in both eras with the tutorial."""
    headers = {"Authorization": f"Bearer {os.environ['SHOP_TOKEN']}"}
    for call in (call_by_official_client, call_by_own_client):
        for era in ERAS:
            names, result = await call(sys.argv[1], headers, era)
            if "product_list" not in names or "restock" in names:
                sys.exit(f"{call.__name__}, {era}: Ada has the tools {sorted(names)}.")
            if [row["name"] for row in result["items"]] != ["Green tea"]:
                sys.exit(f"{call.__name__}, {era}: the result is {result}.")
            print(f"{call.__name__}, {era}: found the green tea")


if __name__ == "__main__":
    asyncio.run(main())
