"""Tools that say that something changed."""

from mcp_django import anotify_list_changed, notify_list_changed, notify_resource_updated, tool


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


@tool()
def change_watched_resource() -> str:
    """Say that the resource changed that clients watch."""
    notify_resource_updated("test://watched-resource")
    return "Watched resource changed"
