"""Resources and templates (server/resources)."""

import base64
import json

from tests.interaction.handlers import PNG
from tests.interaction.transports import contract

UNKNOWN = {"2026-07-28": (400, -32602)}
"""Status and code for a resource that is not there; -32002 in every revision but the newest."""


async def find_listed(client, uri):
    return next(r for r in (await client.request("resources/list")).result["resources"] if r["uri"] == uri)


async def read(client, uri, **how):
    return await client.request("resources/read", {"uri": uri}, **how)


async def test_a_resource_is_listed_with_the_fields_of_the_revision(connect, revision):
    entry = await find_listed(await connect(), "note://static")
    expected = {"uri", "name", "description", "mimeType", "annotations", "size"}
    if revision >= "2025-06-18":
        expected |= {"title", "_meta"}
    if revision >= "2025-11-25":
        expected |= {"icons"}
    assert set(entry) - {"size"} == expected - {"size"}
    assert entry.get("size", 9) == 9


async def test_templates_are_no_entries_of_the_resource_list(either):
    uris = [r["uri"] for r in (await (await either()).request("resources/list")).result["resources"]]
    assert not [uri for uri in uris if "{" in uri]
    assert uris == sorted(uris)


async def test_a_template_is_listed_with_the_fields_of_the_revision(connect, revision):
    templates = (await (await connect()).request("resources/templates/list")).result["resourceTemplates"]
    entry = next(t for t in templates if t["name"] == "by")
    expected = {"uriTemplate", "name", "description", "mimeType"} | ({"title"} if revision >= "2025-06-18" else set())
    assert set(entry) == expected
    assert entry["uriTemplate"] == "note://by/{author}"


@contract
async def test_text_and_bytes_are_read_with_their_mime_types(connect):
    client = await connect()
    contents = (await read(client, "note://static")).result["contents"]
    assert contents == [{"uri": "note://static", "mimeType": "text/plain", "text": "Hello you"}]
    (contents,) = (await read(client, "note://picture")).result["contents"]
    assert (contents["uri"], contents["mimeType"]) == ("note://picture", "image/png")
    assert base64.b64decode(contents["blob"], validate=True) == PNG


async def test_a_resource_may_have_several_contents(connect, revision):
    first, second = (await read(await connect(), "note://both")).result["contents"]
    assert (first["uri"], first["text"], second["uri"]) == ("note://both/1", "one", "note://both/2")
    assert ("_meta" in first) is (revision >= "2025-06-18")


@contract
async def test_a_template_gets_its_variables(connect):
    (contents,) = (await read(await connect(), "note://by/alice")).result["contents"]
    assert (contents["uri"], contents["mimeType"]) == ("note://by/alice", "application/json")
    assert json.loads(contents["text"]) == {"author": "alice"}


async def test_a_variable_is_decoded_once(modern):
    (contents,) = (await read(modern(), "note://by/a%2520b")).result["contents"]
    assert json.loads(contents["text"]) == {"author": "a%20b"}


async def test_a_variable_is_converted_to_the_annotated_type(either):
    (contents,) = (await read(await either(), "note://numbered/7")).result["contents"]
    assert contents["text"] == "note 7"


@contract
async def test_an_unknown_resource_is_the_error_of_the_revision(connect, revision, subtests):
    for uri in ["note://nowhere", "note://by/a/b", "note://numbered/seven", "note://by/", "not a uri"]:
        with subtests.test(uri=uri):
            reply = await read(await connect(), uri)
            status, code = UNKNOWN.get(revision, (200, -32002))
            assert reply.refused(status, code)
            assert reply.error["data"] == {"uri": uri}


async def test_a_variable_never_spans_segments(modern, subtests):
    for uri in ["note://by/%2e%2e", "note://by/..%2f..%2fetc", "note://by/%2Fetc%2Fpasswd"]:
        with subtests.test(uri=uri):
            reply = await read(modern(), uri)
            text = reply.body.decode()
            assert "error" in reply.message or json.loads(reply.result["contents"][0]["text"])["author"] in (
                "..",
                uri,
            ), text


async def test_reading_without_a_uri_is_invalid_params(either, subtests):
    for params in [{}, {"uri": 7}, {"uri": None}]:
        with subtests.test(params=params):
            reply = await (await either()).request("resources/read", params)
            assert reply.error["code"] == -32602


async def test_a_bug_in_a_resource_is_an_internal_error_without_details(either):
    reply = await read(await either(), "note://buggy")
    assert reply.refused(200, -32603)
    assert b"swordfish" not in reply.body


async def test_lists_and_reads_have_cache_hints_in_the_stateless_era_only(connect, revision):
    client = await connect()
    replies = [
        await client.request("resources/list"),
        await client.request("resources/templates/list"),
        await client.request("tools/list"),
        await client.request("prompts/list"),
        await read(client, "note://static"),
    ]
    for reply in replies:
        if revision == "2026-07-28":
            assert isinstance(reply.result["ttlMs"], int)
            assert reply.result["ttlMs"] >= 0
            assert reply.result["cacheScope"] in ("public", "private")
        else:
            assert not {"ttlMs", "cacheScope"} & set(reply.result)


async def test_lists_may_be_cached_for_a_minute_and_contents_never(modern):
    client = modern()
    assert (await client.request("tools/list")).result["ttlMs"] == 60_000
    assert (await read(client, "note://static")).result["ttlMs"] == 0


async def test_calls_and_prompts_have_no_cache_hints(modern):
    client = modern()
    for reply in (await client.tool("nothing"), await client.request("prompts/get", {"name": "scripted"})):
        assert not {"ttlMs", "cacheScope"} & set(reply.result)
