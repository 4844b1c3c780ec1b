"""The schemas that a client of the demo loads."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django.auth.principal import local_principal
from mcp_django.protocol import jsonrpc
from mcp_django.schema.host_rules import find_host_findings
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.wiring import get_server

pytestmark = pytest.mark.django_db
MAX_LIST_BYTES = 33_000
"""A thousand bytes for each tool: half of the size while all tools explained filters, versions and dry runs."""


@pytest.fixture
def tools() -> list[dict[str, Any]]:
    caller = InProcessClient(get_server("default"), local_principal())
    listed: list[dict[str, Any]] = async_to_sync(caller.request)("tools/list", {})["tools"]
    return listed


def test_a_client_loads_the_list_of_tools_without_warnings(tools: list[dict[str, Any]]) -> None:
    assert list(find_host_findings(tools)) == []


def test_the_list_of_tools_is_small(tools: list[dict[str, Any]]) -> None:
    assert len(tools) == 33
    assert len(jsonrpc.dumps(tools)) <= MAX_LIST_BYTES
