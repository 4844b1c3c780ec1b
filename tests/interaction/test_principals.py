"""The principal of a call, by its credential: the same over every transport, and in both eras."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django import Context, tool
from mcp_django.contrib.oauth.toolkit_compat import get_application_model
from mcp_django.management.command_options import get_command_principal
from mcp_django.models import PersonalAccessToken
from mcp_django.server.primitives.registry import get_registry
from tests.interaction import tokens
from tests.interaction.transports import contract
from tests.interaction.verifiers import VOUCHED

SCOPES = ["notes:read", "notes:write"]


@pytest.fixture(autouse=True)
def _describe_caller_tool(settings: Any) -> Any:
    settings.MCP = {**settings.MCP, "AUTH": ["oauth", "token", "tests.interaction.verifiers.Vouched"]}

    @tool(server="interaction")
    async def who(ctx: Context) -> dict[str, Any]:
        one = ctx.principal
        assert ctx.user == one.user
        return {
            "user": one.user and one.user.get_username(),
            "scopes": sorted(one.scopes),
            "client": one.client_id,
            "key": one.key,
            "owner": one.owner,
            "claims": {name: list(value) if type(value) is tuple else value for name, value in one.claims.items()},
        }

    yield
    get_registry("interaction").tools.remove("who")


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann")


async def describe_caller(either: Any, token: str) -> Any:
    return (await (await either(token=token)).tool("who")).result["structuredContent"]


@contract
async def test_the_bearer_of_a_client_s_token(either: Any, ann: User) -> None:
    token = await sync_to_async(tokens.of_a_client)(ann, SCOPES, "interaction")
    client = (await get_application_model().objects.aget(name=tokens.APP)).client_id
    assert await describe_caller(either, token) == {
        "user": "ann",
        "scopes": SCOPES,
        "client": client,
        "key": f"django|{ann.pk}|{client}",
        "owner": f"django|{ann.pk}",
        "claims": {},
    }


async def test_the_bearer_of_a_personal_token(either: Any, ann: User) -> None:
    token = await sync_to_async(tokens.personal)(ann, SCOPES, "interaction")
    client = f"token:{(await PersonalAccessToken.objects.aget()).pk}"
    assert await describe_caller(either, token) == {
        "user": "ann",
        "scopes": SCOPES,
        "client": client,
        "key": f"django|{ann.pk}|{client}",
        "owner": f"django|{ann.pk}",
        "claims": {},
    }


async def test_the_bearer_of_a_token_of_another_issuer(either: Any) -> None:
    assert await describe_caller(either, VOUCHED) == {
        "user": None,
        "scopes": ["notes:read"],
        "client": "desk",
        "key": "https://login.example|u 1|desk",
        "owner": "https://login.example|u 1",
        "claims": {"org": "acme", "roles": ["reader"]},
    }


def test_a_command_run_as_a_user_shares_the_owner_with_tokens_of_that_user(ann: User) -> None:
    local = get_command_principal("ann", SCOPES)
    assert (local.user, sorted(local.scopes), local.owner) == (ann, SCOPES, f"django|{ann.pk}")
