"""Questions with Django forms, in both eras and every revision that has elicitation."""

import pytest

from tests.interaction.clients import accept, answers
from tests.interaction.transports import contract
from tests.testapp.models import Book

ELICITING = ["2025-06-18", "2025-11-25", "2026-07-28"]


pytestmark = pytest.mark.revisions(*ELICITING)


def text(reply):
    return reply.result["content"][0]["text"]


@contract
async def test_a_django_form_is_elicited_in_the_form_of_the_revision(connect, revision):
    asked = []

    def answer(method, params):
        asked.append(params["requestedSchema"])
        return accept(guest="ada", nights=3, meals="full")

    assert text(await (await connect()).ask_tool("ask_booking", {}, answer)) == "Ada 3 full"
    guest, nights, meals = asked[0]["properties"].values()
    assert asked[0]["required"] == ["guest", "nights", "meals"]
    assert guest == {"type": "string", "title": "Name of the guest", "minLength": 1, "maxLength": 20}
    old = revision == "2025-06-18"
    assert nights == {
        "type": "integer",
        "title": "Nights",
        "minimum": 1,
        "maximum": 30,
        **({} if old else {"default": 2}),
    }
    titled = [{"const": "half", "title": "Half board"}, {"const": "full", "title": "Full board"}]
    assert meals == (
        {"type": "string", "title": "Board", "enum": ["half", "full"], "enumNames": ["Half board", "Full board"]}
        if old
        else {"type": "string", "title": "Board", "oneOf": titled, "default": "half"}
    )


async def test_errors_of_the_form_are_in_the_next_question(connect):
    asked = []
    script = [accept(guest="x" * 30, nights=99, meals="full"), accept(guest="ada", nights=1, meals="half")]
    assert text(await (await connect()).ask_tool("ask_booking", {}, answers(script, asked))) == "Ada 1 half"
    message, *reasons = asked[1].splitlines()
    assert message == "For how long?"
    assert any(reason.startswith("Name of the guest: ") for reason in reasons)
    assert any(reason.startswith("Nights: ") for reason in reasons)


async def test_declining_a_django_form_is_not_an_error(connect, subtests):
    for action in ["decline", "cancel"]:
        with subtests.test(action=action):
            assert text(await (await connect()).ask_tool("ask_booking", {}, answers([{"action": action}]))) == action


@pytest.mark.django_db(transaction=True)
def test_a_django_form_is_built_and_read_on_threads(transport, connect, subtests):
    """On a loop of its own, so that the call has a thread."""

    async def run():
        for name in ["ask_booking_from_a_thread", "ask_booking"]:
            with subtests.test(name=name):
                answer = answers([accept(nights=0), accept(guest="bob", nights=4)])
                reply = await (await connect()).ask_tool(name, {}, answer)
                assert text(reply).startswith("Bob 4")

    transport.run(run())


async def test_multiple_choices_of_a_form_need_a_revision_that_has_them(connect, revision):
    asked = []
    reply = await (await connect()).ask_tool("ask_packing", {}, answers([accept(items=["t", "b"])], asked))
    if revision == "2025-06-18":
        assert asked == []
        assert reply.result["isError"] is True
        assert "'items'" in text(reply)
    else:
        assert text(reply) == '["t","b"]'


async def test_a_model_form_saves_the_answer_and_the_conversation_goes_on(connect):
    script = [accept(title="Emma", pages=474), accept(value=True)]
    assert text(await (await connect()).ask_tool("add_book", {}, answers(script))) == "Emma True True"
    assert [(book.title, book.pages) async for book in Book.objects.all()] == [("Emma", 474)]


async def test_a_model_form_is_asked_again_after_a_duplicate(connect):
    await Book.objects.acreate(title="Emma")
    asked = []
    script = [accept(title="Emma", pages=1), accept(title="Persuasion", pages=2), accept(value=False)]
    assert text(await (await connect()).ask_tool("add_book", {}, answers(script, asked))) == "Persuasion True False"
    assert asked[1].startswith("Which book?\n\nTitle: ")


async def test_a_resource_template_may_ask(connect, revision):
    client = await connect()
    answer = answers([accept(value="Al")])
    reply = await client.converse("resources/read", {"uri": "note://asking/tea"}, answer)
    assert reply.result["contents"][0]["text"] == "tea for Al"


async def test_a_prompt_without_elicitation_is_an_error(connect, revision):
    client = await connect(capabilities={})
    for method, params in (
        ("prompts/get", {"name": "asking_prompt"}),
        ("resources/read", {"uri": "note://asking/tea"}),
    ):
        reply = await client.request(method, params)
        assert reply.error["code"] == (-32021 if revision == "2026-07-28" else -32603)
        assert "elicitation" in str(reply.error)
        assert len(reply.messages) == 1
