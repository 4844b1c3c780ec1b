"""Operations without permission: hidden, or open to a step-up."""

from tests.interaction.transports import contract


async def names(client, method, kind, key="name"):
    return {entry[key] for entry in (await client.request(method)).result[kind]}


LISTS = [
    ("tools/list", "tools", "name", "guarded"),
    ("resources/list", "resources", "uri", "note://guarded"),
    ("prompts/list", "prompts", "name", "guarded_prompt"),
]


async def test_hidden_primitives_are_not_listed(either, subtests):
    for method, kind, key, name in LISTS:
        with subtests.test(method=method, kind=kind, key=key, name=name):
            assert name not in await names(await either(token="alice"), method, kind, key)
            assert name in await names(await either(token="root"), method, kind, key)


REQUESTS = [
    ("tools/call", {"name": "guarded"}, {"name": "no_such_thing"}),
    ("resources/read", {"uri": "note://guarded"}, {"uri": "note://nothing"}),
    ("prompts/get", {"name": "guarded_prompt", "arguments": {"name": "x"}}, {"name": "no_such_thing"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "guarded_prompt"}, "argument": {"name": "name", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "no_such_thing"}, "argument": {"name": "name", "value": ""}},
    ),
]


@contract
async def test_hidden_primitives_are_answered_as_unknown_ones(either, subtests):
    for method, hidden, unknown in REQUESTS:
        with subtests.test(method=method, hidden=hidden, unknown=unknown):
            client = await either(token="alice")
            first, second = await client.request(method, hidden, id=1), await client.request(method, unknown, id=1)
            assert first.verdict == second.verdict
            name, other = (str(p.get("name") or p.get("uri") or p["ref"]["name"]) for p in (hidden, unknown))
            assert first.body.decode().replace(name, other) == second.body.decode()


async def test_permitted_primitives_are_served(either, subtests):
    for method, hidden, unknown in REQUESTS:
        with subtests.test(method=method, hidden=hidden, unknown=unknown):
            assert (await (await either(token="root")).request(method, hidden)).served


async def test_a_tool_that_needs_more_scopes_is_listed(either):
    assert "scoped" in await names(await either(token="alice"), "tools/list", "tools")


@contract
async def test_a_call_without_the_scopes_is_forbidden_with_all_required_scopes(either, subtests):
    for token in ["alice", "carol", "root"]:
        with subtests.test(token=token):
            reply = await (await either(token=token)).tool("scoped")
            if reply.status is None:
                assert sorted(reply.error["data"]["requiredScopes"]) == ["notes:read", "notes:write"]
                return
            assert reply.status == 403
            challenge = reply.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in challenge
            assert 'scope="notes:read notes:write"' in challenge


async def test_a_call_with_the_scopes_is_served(either):
    assert (await (await either(token="writer")).tool("scoped")).result["content"][0]["text"] == "written"


async def test_a_missing_scope_comes_before_the_parameter_headers(modern):
    reply = await modern(token="alice").tool("scoped", {"region": "north"}, headers={"mcp-param-region": "south"})
    assert reply.status == 403


async def test_lists_that_differ_between_principals_are_private(modern):
    client = modern()
    for method in ("tools/list", "resources/list", "prompts/list"):
        assert (await client.request(method)).result["cacheScope"] == "private"
