"""Prompts and completion (server/prompts, server/utilities/completion)."""

import json

from tests.interaction.transports import contract


async def complete(client, ref, name, value, **more):
    params = {"ref": ref, "argument": {"name": name, "value": value}, **more}
    return await client.request("completion/complete", params)


def prompt_ref(name):
    return {"type": "ref/prompt", "name": name}


async def test_a_prompt_is_listed_with_the_fields_of_the_revision(connect, revision):
    prompts = (await (await connect()).request("prompts/list")).result["prompts"]
    entry = next(p for p in prompts if p["name"] == "welcome")
    expected = {"name", "description", "arguments"}
    if revision >= "2025-06-18":
        expected |= {"title", "_meta"}
    if revision >= "2025-11-25":
        expected |= {"icons"}
    assert set(entry) == expected


async def test_the_arguments_of_a_prompt_are_listed(either):
    prompts = (await (await either()).request("prompts/list")).result["prompts"]
    arguments = next(p for p in prompts if p["name"] == "welcome")["arguments"]
    assert [(a["name"], a["description"], a.get("required", False)) for a in arguments] == [
        ("name", "Whom.", True),
        ("tone", "How.", False),
    ]


async def test_a_returned_text_is_one_user_message(connect):
    reply = await (await connect()).request("prompts/get", {"name": "welcome", "arguments": {"name": "Al"}})
    text = {"type": "text", "text": "Welcome Al, warmly"}
    assert reply.result["messages"] == [{"role": "user", "content": text}]
    assert reply.result["description"] == "Welcome a guest."


@contract
async def test_messages_have_content_types_of_the_revision(connect, revision):
    messages = (await (await connect()).request("prompts/get", {"name": "scripted"})).result["messages"]
    assert [m["role"] for m in messages] == ["user", "user", "user", "user", "assistant"]
    kinds = [m["content"]["type"] for m in messages]
    assert (kinds[0], kinds[1], kinds[4]) == ("text", "image", "resource")
    assert (kinds[2] == "audio") is (revision >= "2025-03-26")
    assert (kinds[3] == "resource_link") is (revision >= "2025-06-18")
    assert "note://static" in json.dumps(messages[3])


async def test_unknown_arguments_of_a_prompt_are_invalid_params(either, subtests):
    for params in [
        {"name": "no_such_prompt"},
        {"name": "welcome"},
        {"name": "welcome", "arguments": {"tone": "cold"}},
        {"name": "welcome", "arguments": {"name": "Al", "colour": "red"}},
        {"name": "welcome", "arguments": {"name": 7}},
        {"name": "welcome", "arguments": []},
        {"name": 7},
        {},
    ]:
        with subtests.test(params=params):
            reply = await (await either()).request("prompts/get", params)
            assert reply.error["code"] == -32602


@contract
async def test_completion_offers_matching_values(connect):
    reply = await complete(await connect(), prompt_ref("welcome"), "tone", "w")
    assert reply.result["completion"]["values"] == ["warm", "wild", "weary"]


async def test_completion_gets_the_arguments_chosen_before(either):
    chosen = {"arguments": {"name": "enemy"}}
    reply = await complete(await either(), prompt_ref("welcome"), "tone", "w", context=chosen)
    assert reply.result["completion"]["values"] == ["cold"]


async def test_completion_is_cut_at_a_hundred_values(connect):
    completion = (await complete(await connect(), prompt_ref("welcome"), "name", "n")).result["completion"]
    assert len(completion["values"]) == 100
    assert (completion["total"], completion["hasMore"]) == (250, True)


async def test_completion_of_a_template_takes_the_template_or_a_uri(either, subtests):
    for uri in ["note://by/{author}", "note://by/al"]:
        with subtests.test(uri=uri):
            reply = await complete(await either(), {"type": "ref/resource", "uri": uri}, "author", "al")
            assert reply.result["completion"]["values"] == ["alice", "albert"]


async def test_an_argument_that_nothing_completes_has_no_suggestions(either):
    reply = await complete(await either(), {"type": "ref/resource", "uri": "note://numbered/{number}"}, "number", "1")
    assert reply.result["completion"]["values"] == []


async def test_completion_of_an_unknown_reference_is_invalid_params(either, subtests):
    for ref in [
        prompt_ref("no_such_prompt"),
        {"type": "ref/resource", "uri": "note://{no}/such/{template}"},
        {"type": "ref/what"},
        {},
        7,
    ]:
        with subtests.test(ref=ref):
            reply = await complete(await either(), ref, "name", "a")
            assert reply.error["code"] == -32602


async def test_completion_without_a_proper_argument_is_invalid_params(either, subtests):
    for argument in [None, {}, {"name": "tone"}, {"name": 1, "value": "a"}, "tone"]:
        with subtests.test(argument=argument):
            reply = await (await either()).request(
                "completion/complete", {"ref": prompt_ref("welcome"), "argument": argument}
            )
            assert reply.error["code"] == -32602
