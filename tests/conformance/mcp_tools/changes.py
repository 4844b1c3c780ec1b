"""Tools that notify of changes, and a resource that one of them changes."""

import itertools

from mcp_django import anotify_list_changed, notify_list_changed, notify_resource_updated, resource, tool


@tool()
def test_trigger_tool_change() -> str:
    """Say that the list of tools changed."""
    notify_list_changed("tools")
    return "Tools list changed"


@tool()
async def test_trigger_prompt_change() -> str:
    """Say that the list of prompts changed."""
    await anotify_list_changed("prompts")
    return "Prompts list changed"


VERSIONS = itertools.count(1)
watched_version = next(VERSIONS)
"""Version of the resource that clients watch, for the only worker of the fixtures server."""


@resource("test://watched-resource", title="Watched Resource", mime_type="text/plain")
def watched_resource() -> str:
    """A resource that clients watch for updates."""
    return f"Watched resource content, version {watched_version}"


@tool()
def touch_watched_resource() -> str:
    """Change the resource that clients watch, and notify them."""
    global watched_version
    watched_version = next(VERSIONS)
    notify_resource_updated("test://watched-resource")
    return f"Touched test://watched-resource, which has version {watched_version}"
