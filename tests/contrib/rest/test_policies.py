"""Policies of tools that are views of Django REST framework."""

import pytest
from asgiref.sync import async_to_sync

from mcp_django.models import ToolPolicy
from mcp_django.protocol.errors import InvalidParams
from tests.contrib.rest.test_expose import names, served
from tests.library import views
from tests.server.client import PipelineClient

pytestmark = pytest.mark.django_db


def test_a_view_whose_tool_is_disabled_is_no_tool() -> None:
    server = served(views.rate)
    client = PipelineClient(server)
    assert async_to_sync(client.names)() == names(server) == ["rate_get"]
    ToolPolicy.objects.create(tool="rate_*", disabled=True)
    assert async_to_sync(client.names)() == []
    texts = []
    for name in ("rate_get", "rate_gex"):
        with pytest.raises(InvalidParams) as refused:
            async_to_sync(client.call)(name, word="love")
        texts.append(str(refused.value).replace("gex", "get"))
    assert texts[0] == texts[1]


def test_a_view_s_tool_may_have_a_rate() -> None:
    ToolPolicy.objects.create(tool="rate_get", rate="1/h")
    client = PipelineClient(served(views.rate))
    assert "called too often" not in str(async_to_sync(client.call)("rate_get", word="love"))
    assert "called too often; wait" in async_to_sync(client.error)("rate_get", word="love")
