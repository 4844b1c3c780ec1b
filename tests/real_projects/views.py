"""Views of a project's API: the rows of their tools beside the answers of the API itself."""

from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from django.test import Client

from mcp_django.protocol.errors import MCPError
from mcp_django.testing import TestClient
from tests.real_projects.operations import Findings
from tests.real_projects.site import ViewList

SERVER = "views"
"""Alias of the server with the views, in the settings of each project."""


def compare_views(lists: list[ViewList], users: Mapping[str, Any], findings: Findings) -> None:
    """List each view's rows as each user, and compare their keys with those of the API's own answer."""
    for name, user in users.items():
        client, browser = (
            TestClient(SERVER, user=user),
            Client(raise_request_exception=False, headers={"accept": "application/json"}),
        )
        browser.force_login(user)
        listed = {tool["name"] for tool in async_to_sync(client.list_tools)()}
        for entry in lists:
            response = browser.get(entry.path)
            if response.status_code >= 500:  # the API itself fails on random rows
                continue
            expected = select_keys(response.json()) if response.status_code == 200 else None
            found = call_list(client, entry, findings, name) if entry.tool in listed else None
            findings.count("view list")
            if (found or []) != (expected or []):
                text = f"{name}: {entry.tool}: {summarize(found)}, the API has {summarize(expected)}"
                is_leak = bool(set(map(str, found or [])) - set(map(str, expected or [])))
                (findings.leaks if is_leak else findings.wrong).append(text)


def call_list(client: TestClient, entry: ViewList, findings: Findings, name: str) -> list[Any] | None:
    """Return the keys of the rows that a tool lists, or None if it refuses."""
    try:
        answer = async_to_sync(client.call_tool)(entry.tool, entry.arguments)
    except MCPError:
        return None
    except Exception as error:
        findings.internal_errors.append(f"{name}: {entry.tool}: {type(error).__name__}: {error}"[:400])
        return None
    return None if answer.get("isError") else select_keys(answer.get("structuredContent"))


def select_keys(content: Any) -> list[Any]:
    """Return the keys of the rows in an answer of an API: a list, or a page with `results` or `items`."""
    rows = content
    if isinstance(content, dict):
        rows = content.get("results", content.get("items", content.get("result", [])))
        if isinstance(rows, dict):
            rows = rows.get("results", [])
    return [
        next((row[key] for key in ("id", "code", "slug", "identifier", "name") if key in row), str(row))
        for row in rows or []
    ]


def count_untyped_tools(findings: Findings) -> int:
    """Return the number of writing tools whose only argument for the body has no type."""
    tools = async_to_sync(TestClient(SERVER).list_tools)()
    return sum(
        1
        for tool in tools
        if "body" in tool["inputSchema"]["properties"]
        and not tool["inputSchema"]["properties"]["body"].get("properties")
        and tool["inputSchema"]["properties"]["body"].get("type") not in ("array", "object")
    )


def summarize(keys: list[Any] | None) -> str:
    """Return the number of rows, or the refusal."""
    return "a refusal" if keys is None else f"{len(keys)} rows"
