"""Pages and their cursors (server/utilities/pagination)."""

from tests.interaction.transports import contract


async def pages(client, method="tools/list"):
    """All pages of a list."""
    found, cursor = [], None
    while True:
        reply = await client.request(method, {} if cursor is None else {"cursor": cursor})
        found.append(reply.result)
        cursor = reply.result.get("nextCursor")
        if cursor is None:
            return found


@contract
async def test_pages_hold_everything_once_and_in_order(connect):
    client = await connect(server="pages")
    found = await pages(client)
    assert [[tool["name"] for tool in page["tools"]] for page in found] == [
        ["tool_0", "tool_1"],
        ["tool_2", "tool_3"],
        ["tool_4"],
    ]


async def test_every_list_has_pages(either):
    found = await pages(await either(server="pages"), "resources/list")
    assert [len(page["resources"]) for page in found] == [2, 2, 1]


async def test_a_list_that_fits_has_no_cursor(either):
    assert "nextCursor" not in (await (await either()).request("tools/list")).result


async def test_a_cursor_is_valid_on_another_connection(either):
    first, second = await either(server="pages"), await either(server="pages")
    cursor = (await first.request("tools/list")).result["nextCursor"]
    reply = await second.request("tools/list", {"cursor": cursor})
    assert [tool["name"] for tool in reply.result["tools"]] == ["tool_2", "tool_3"]


async def test_a_cursor_is_opaque(modern):
    cursor = (await modern(server="pages").request("tools/list")).result["nextCursor"]
    assert "tool_1" not in cursor


async def test_an_invented_cursor_is_invalid_params(either, subtests):
    for cursor in ["", "made up", 7, [], "AAAA" * 100]:
        with subtests.test(cursor=cursor):
            reply = await (await either(server="pages")).request("tools/list", {"cursor": cursor})
            assert reply.error["code"] == -32602


async def test_a_changed_cursor_is_invalid_params(modern):
    client = modern(server="pages")
    cursor = (await client.request("tools/list")).result["nextCursor"]
    swapped = ("A" if cursor[-3] != "A" else "B").join((cursor[:-3], cursor[-2:]))
    assert (await client.request("tools/list", {"cursor": swapped})).error["code"] == -32602


async def test_a_cursor_of_another_list_is_invalid_params(modern):
    client = modern(server="pages")
    cursor = (await client.request("tools/list")).result["nextCursor"]
    assert (await client.request("resources/list", {"cursor": cursor})).error["code"] == -32602


async def test_pages_of_one_list_have_one_cache_scope(modern):
    found = await pages(modern(server="pages"))
    assert len({page["cacheScope"] for page in found}) == 1


async def test_an_endpoint_lists_only_its_own_primitives(either):
    client = await either(server="pages")
    assert (await client.tool("add", {"a": 1, "b": 2})).error["code"] == -32602
