"""Stored prompts and resources as clients receive them."""

from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, OperationalError, transaction
from django.db.models import CharField, JSONField, TextField

from mcp_django.auth.principal import local_principal
from mcp_django.models import StoredArgument, StoredMessage, StoredPrompt, StoredResource, StoredState
from mcp_django.protocol.errors import InsufficientScope, InternalError, InvalidParams, ResourceNotFound
from mcp_django.providers.stored import MAX_RENDERED_CHARACTERS, StoredProvider
from mcp_django.runtime.database_failures import report_database_failure
from mcp_django.server.ports import Overloaded
from mcp_django.server.server import Server
from tests.official_schema import validator
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return make_server(providers=[StoredProvider("default")])


@pytest.fixture
def peer(server: Server) -> PipelineClient:
    return PipelineClient(server)


def ask(peer: PipelineClient, method: str, **params: Any) -> dict[str, Any]:
    return async_to_sync(peer.request)(method, params)


def get(peer: PipelineClient, name: str = "greet", /, **arguments: str) -> list[str]:
    """Return the texts of a prompt."""
    found = ask(peer, "prompts/get", name=name, arguments=arguments)["messages"]
    return [message["content"]["text"] for message in found]


def read(peer: PipelineClient, uri: str) -> dict[str, Any]:
    (contents,) = ask(peer, "resources/read", uri=uri)["contents"]
    return dict(contents)


def complete(peer: PipelineClient, name: str, argument: str, value: str) -> list[str]:
    params = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": argument, "value": value}}
    values: list[str] = ask(peer, "completion/complete", **params)["completion"]["values"]
    return values


def names(peer: PipelineClient) -> list[str]:
    return [entry["name"] for entry in ask(peer, "prompts/list")["prompts"]]


def uris(peer: PipelineClient) -> list[str]:
    return [entry["uri"] for entry in ask(peer, "resources/list")["resources"]]


def prompt(*texts: str, name: str = "greet", arguments: Any = (), **fields: Any) -> StoredPrompt:
    """Create a prompt with messages, and arguments that are names or fields."""
    row = StoredPrompt.objects.create(name=name, **fields)
    for position, said in enumerate(arguments, start=1):
        more = {"name": said} if isinstance(said, str) else said
        StoredArgument.objects.create(prompt=row, position=position, **more)
    for position, text in enumerate(texts, start=1):
        StoredMessage.objects.create(prompt=row, position=position, text=text)
    return row


def message(row: StoredPrompt, **fields: Any) -> StoredMessage:
    return StoredMessage.objects.create(prompt=row, position=99, **fields)


def resource(uri: str = "docs://a", **fields: Any) -> StoredResource:
    return StoredResource.objects.create(uri=uri, **{"name": "a", "text": "text", **fields})


# Lists


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_lists_follow_the_specification(server: Server, version: str) -> None:
    prompt("Hi", arguments=["who", {"name": "tone", "required": False, "title": "Tone"}], title="Greet", tags=["x"])
    resource(description="A.", mime_type="text/markdown", audience="user assistant", priority=0.5, title="T")
    peer = PipelineClient(server, version=version)
    prompts, resources = ask(peer, "prompts/list"), ask(peer, "resources/list")
    validator(version, "ListPromptsResult").validate(prompts)
    validator(version, "ListResourcesResult").validate(resources)
    (listed,) = prompts["prompts"]
    assert listed["arguments"] == [
        {"name": "who", "required": True},
        {"name": "tone", "title": "Tone", "required": False},
    ]
    (found,) = resources["resources"]
    assert (found["size"], found["mimeType"], found["annotations"]["audience"]) == (
        4,
        "text/markdown",
        ["user", "assistant"],
    )
    assert found["annotations"]["lastModified"].startswith("20")


def test_an_empty_server_declares_both_lists_for_later_rows(server: Server, peer: PipelineClient) -> None:
    assert {"prompts", "resources", "completions"} <= server.offered_capabilities
    assert (names(peer), uris(peer)) == ([], [])


def test_a_list_costs_one_statement_and_tools_none(peer: PipelineClient, django_assert_num_queries: Any) -> None:
    prompt("Hi", arguments=["who"])
    resource()

    @peer.server.tool
    async def add() -> str:
        return "done"

    assert names(peer) == ["greet"]
    for method in ("prompts/list", "resources/list"):
        with django_assert_num_queries(1):
            ask(peer, method)
    with django_assert_num_queries(0):
        ask(peer, "tools/list")
        ask(peer, "tools/call", name="add", arguments={})
        ask(peer, "resources/templates/list")


def test_a_list_is_encoded_once_while_nothing_changes(peer: PipelineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt("Hi")
    names(peer)
    monkeypatch.setattr(peer.server.listings, "_encode_page", None)
    assert names(peer) == ["greet"]


def test_a_saved_row_is_served_at_the_next_request_in_every_process(peer: PipelineClient) -> None:
    other = PipelineClient(make_server(providers=[StoredProvider("default")]))
    assert (names(peer), names(other)) == ([], [])
    row = prompt("Hi")
    assert (names(peer), names(other)) == (["greet"], ["greet"])
    row.name = "welcome"
    row.save()
    assert (names(peer), names(other)) == (["welcome"], ["welcome"])
    row.delete()
    assert (names(peer), names(other)) == ([], [])


def test_a_rolled_back_row_is_not_cached(peer: PipelineClient) -> None:
    for name in ("one", "two"):
        with transaction.atomic():
            prompt("Hi", name=name)
            assert names(peer) == [name]
            transaction.set_rollback(True)
    assert names(peer) == []


def test_bulk_changes_are_seen_too(peer: PipelineClient) -> None:
    StoredPrompt.objects.bulk_create([StoredPrompt(name="one"), StoredPrompt(name="two")])
    assert names(peer) == ["one", "two"]
    StoredPrompt.objects.filter(name="one").update(enabled=False)
    assert names(peer) == ["two"]


def test_a_disabled_row_is_unknown(peer: PipelineClient) -> None:
    prompt("Hi", enabled=False)
    resource(enabled=False)
    assert (names(peer), uris(peer)) == ([], [])
    with pytest.raises(InvalidParams, match="Unknown prompt: greet"):
        get(peer)
    with pytest.raises(ResourceNotFound):
        read(peer, "docs://a")


def test_a_row_for_one_server_is_on_no_other_and_wins_over_one_for_all(peer: PipelineClient) -> None:
    prompt("all")
    prompt("mine", server="default")
    prompt("theirs", name="foreign", server="staff")
    staff = PipelineClient(make_server(providers=[StoredProvider("staff")]))
    assert (names(peer), get(peer)) == (["greet"], ["mine"])
    assert (names(staff), get(staff)) == (["foreign", "greet"], ["all"])


def test_registrations_in_code_win(peer: PipelineClient) -> None:
    prompt("stored", arguments=[{"name": "who", "choices": ["secret"]}])
    resource()

    @peer.server.prompt
    def greet(who: str) -> str:
        return "registered"

    @peer.server.resource("docs://{name}")
    def doc(name: str) -> str:
        return f"registered {name}"

    assert get(peer, who="x") == ["registered"]
    assert read(peer, "docs://a")["text"] == "registered a"
    assert complete(peer, "greet", "who", "") == []


# Getting prompts


def test_arguments_are_filled_in(peer: PipelineClient) -> None:
    prompt("Hi $who, ${who}s and $$5 to $Who", "{who} {{ who }} %(who)s", arguments=["who"])
    assert get(peer, who="Ada") == ["Hi Ada, Adas and $5 to $Who", "{who} {{ who }} %(who)s"]


def test_roles_links_and_resources_follow_the_specification(peer: PipelineClient) -> None:
    row = prompt("Hi $who", arguments=["who"])
    message(row, kind="link", uri="docs://$who", text="About $who", role="assistant")
    message(row, kind="link", uri="docs://$who")
    message(row, kind="resource", uri="docs://a")
    resource(mime_type="text/markdown")
    for version in (STATELESS, HANDSHAKE, "2024-11-05"):
        result = ask(
            PipelineClient(peer.server, version=version), "prompts/get", name="greet", arguments={"who": "a/../b c"}
        )
        validator(version, "GetPromptResult").validate(result)
    found = ask(peer, "prompts/get", name="greet", arguments={"who": "a/../b c"})["messages"]
    link = {"type": "resource_link", "uri": "docs://a%2F..%2Fb%20c", "name": "About a/../b c"}
    assert found[1] == {"role": "assistant", "content": link}
    assert found[2]["content"]["name"] == "docs://a%2F..%2Fb%20c"
    contents = {"uri": "docs://a", "mimeType": "text/markdown", "text": "text"}
    assert found[3]["content"] == {"type": "resource", "resource": contents}


def test_a_missing_argument_is_its_default_or_empty(peer: PipelineClient) -> None:
    optional = [{"name": "tone", "required": False, "default": "kind"}, {"name": "to", "required": False}]
    prompt("[$tone][$to]", arguments=optional)
    assert get(peer) == ["[kind][]"]
    assert get(peer, tone="", to="x") == ["[][x]"]


def test_wrong_arguments_are_reported(peer: PipelineClient, subtests: pytest.Subtests) -> None:
    prompt("$who", arguments=["who", {"name": "tone", "required": False, "choices": ["kind", "curt"]}])
    for given, complaint in [
        ({}, "missing argument 'who'"),
        ({"who": "x", "whom": "x"}, "unknown argument 'whom'; did you mean 'who'"),
        ({"who": "x", "tone": "rude"}, 'tone: "rude" must be one of "kind", "curt"'),
    ]:
        with subtests.test(given=given, complaint=complaint), pytest.raises(InvalidParams, match=complaint):
            get(peer, **given)


def test_choices_are_completed(peer: PipelineClient) -> None:
    prompt("$who", arguments=["who", {"name": "tone", "choices": ["unkind", "Kind", "curt"]}])
    assert complete(peer, "greet", "tone", "ki") == ["Kind", "unkind"]
    assert complete(peer, "greet", "who", "") == []
    assert complete(peer, "greet", "nobody", "") == []


ATTACKS = [
    "$who",
    "$secret ${secret} $$",
    "{{ settings.SECRET_KEY }}{% debug %}",
    "{0.__class__}{who.__init__.__globals__}",
    "%(who)s %s",
    "$$who",
    "\\g<0> \\1",
    "<script>alert(1)</script>",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
]


def test_argument_values_are_inserted_verbatim_and_not_expanded(
    peer: PipelineClient, subtests: pytest.Subtests
) -> None:
    hidden = {"name": "secret", "required": False, "default": "top secret"}
    prompt("<$who|$secret|$who>", arguments=["who", hidden])
    for value in ATTACKS:
        with subtests.test(value=value):
            assert get(peer, who=value) == [f"<{value}|top secret|{value}>"]


def test_unknown_placeholders_are_left_unchanged(peer: PipelineClient) -> None:
    prompt("$nobody ${nobody} $5 $", arguments=["who"])
    assert get(peer, who="x") == ["$nobody ${nobody} $5 $"]


def test_a_short_prompt_cannot_be_made_to_fill_the_memory(peer: PipelineClient) -> None:
    prompt("$who" * 1000, arguments=["who"])
    with pytest.raises(InvalidParams, match=f"longer than {MAX_RENDERED_CHARACTERS} characters"):
        get(peer, who="x" * 1_000_000)


def test_embedded_resources_count_for_the_limit(peer: PipelineClient) -> None:
    message(prompt("Hi"), kind="resource", uri="docs://a")
    resource(data=b"x" * MAX_RENDERED_CHARACTERS)
    with pytest.raises(InvalidParams, match="longer than"):
        get(peer)


# Reading resources


def test_texts_and_files_are_read(peer: PipelineClient) -> None:
    resource("docs://text", text="ä$who{{ x }}")
    resource("docs://file", text="", data=b"\x00\xff", mime_type="image/png")
    resource("docs://any", text="", data=b"\x00")
    assert read(peer, "docs://text") == {"uri": "docs://text", "mimeType": "text/plain", "text": "ä$who{{ x }}"}
    assert read(peer, "docs://file") == {"uri": "docs://file", "mimeType": "image/png", "blob": "AP8="}
    assert read(peer, "docs://any")["mimeType"] == "application/octet-stream"


def test_contents_are_loaded_for_reads_and_not_for_lists(peer: PipelineClient, django_assert_num_queries: Any) -> None:
    resource()
    with django_assert_num_queries(3) as captured:
        uris(peer)
    assert not any('"text"' in query["sql"] and "stored" in query["sql"] for query in captured.captured_queries)
    with django_assert_num_queries(2):
        read(peer, "docs://a")


# Permissions


def test_without_the_permission_a_prompt_answers_as_one_that_does_not_exist(server: Server) -> None:
    prompt("$who", arguments=[{"name": "who", "choices": ["secret"]}], permission="shop.view_order shop.view_item")
    some, all_ = make_principal("shop.view_order"), make_principal("shop.view_order", "shop.view_item", name="all")
    peer = PipelineClient(server, some)
    assert names(peer) == []
    for name in ("greet", "nobody"):
        with pytest.raises(InvalidParams, match=f"^Unknown prompt: {name}$"):
            get(peer, name)
        with pytest.raises(InvalidParams, match=f"^Unknown prompt: {name}$"):
            complete(peer, name, "who", "")
    allowed = PipelineClient(server, all_)
    assert (names(allowed), get(allowed, who="secret")) == (["greet"], ["secret"])
    assert complete(allowed, "greet", "who", "s") == ["secret"]


def test_without_the_permission_a_resource_answers_as_one_that_does_not_exist(server: Server) -> None:
    resource(permission="shop.view_order")
    peer = PipelineClient(server, make_principal())
    assert uris(peer) == []
    told = []
    for uri in ("docs://a", "docs://b"):
        with pytest.raises(ResourceNotFound) as refused:
            read(peer, uri)
        told.append(str(refused.value).replace(uri, ""))
    assert told[0] == told[1]
    assert read(PipelineClient(server, make_principal("shop.view_order")), "docs://a")["text"] == "text"


def test_a_missing_scope_is_named(server: Server) -> None:
    prompt("Hi", scopes=["prompts"])
    peer = PipelineClient(server, make_principal())
    assert names(peer) == ["greet"]
    with pytest.raises(InsufficientScope):
        get(peer)
    assert get(PipelineClient(server, make_principal(scopes=["prompts"], name="other"))) == ["Hi"]


def test_a_prompt_embeds_nothing_that_its_caller_may_not_read(server: Server) -> None:
    message(prompt("Hi", arguments=["which"]), kind="resource", uri="docs://$which")
    resource("docs://secret", permission="shop.view_order", text="secret")
    resource("docs://off", enabled=False)
    server.resource("docs://code", permission="shop.view_order")(lambda: "secret")
    told = set()
    for which in ("secret", "off", "code", "nobody"):
        with pytest.raises(ResourceNotFound) as refused:
            get(PipelineClient(server, make_principal()), which=which)
        told.add(str(refused.value).replace(which, ""))
    assert len(told) == 1
    found = ask(
        PipelineClient(server, make_principal("shop.view_order")),
        "prompts/get",
        name="greet",
        arguments={"which": "secret"},
    )
    assert found["messages"][1]["content"]["resource"]["text"] == "secret"


def test_lists_of_two_callers_are_not_mixed_up(server: Server) -> None:
    prompt("Hi", name="secret", permission="shop.view_order")
    prompt("Hi", name="open")
    boss, guest = (
        PipelineClient(server, make_principal("shop.view_order", name="boss")),
        PipelineClient(server, make_principal()),
    )
    for _ in range(2):
        assert (names(boss), names(guest)) == (["open", "secret"], ["open"])


def test_the_lists_that_permissions_decide_about_are_known(server: Server) -> None:
    (provider,) = server.providers
    assert provider.get_permission_dependent() == frozenset()
    prompt("Hi", permission="shop.view_order")
    assert provider.get_permission_dependent() == {"prompts"}
    resource(permission="shop.view_order")
    assert provider.get_permission_dependent() == {"prompts", "resources"}


def test_stored_rows_are_not_polled_for_changes(server: Server) -> None:
    assert not server.providers[0].has_version


@pytest.mark.django_db(transaction=True)
def test_registrations_are_served_before_the_tables_exist(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    server.prompt(lambda: "Hi", name="registered")
    monkeypatch.setattr(StoredState._meta, "db_table", "mcp_django_not_yet")
    assert names(PipelineClient(server)) == ["registered"]
    assert "migrate" in caplog.text
    assert server.providers[0].get_permission_dependent() == frozenset()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_fails_is_no_empty_list(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any) -> str:
        raise OperationalError("gone")

    monkeypatch.setattr(StoredState.objects._queryset_class, "get_version", fail)
    server.bind(replace(server.ports, report_unavailability=report_database_failure))
    with pytest.raises(Overloaded, match="database is unavailable"):
        names(PipelineClient(server))


def test_an_unreadable_row_does_not_hide_others(peer: PipelineClient, caplog: pytest.LogCaptureFixture) -> None:
    broken = prompt("hello", name="broken")
    prompt("hello")
    StoredPrompt.objects.filter(pk=broken.pk).update(tags=7)  # as a program that bypasses the form writes
    resource()
    for _ in range(2):
        assert names(peer) == ["greet"]
        assert uris(peer) == ["docs://a"]
    [record] = caplog.records
    assert (record.levelname, f"stored row {broken.pk}" in record.getMessage()) == ("ERROR", True)


def test_embedded_resources_pass_their_guards_and_interceptors(server: Server) -> None:
    async def marked(ctx: Any, proceed: Any) -> Any:
        return f"{await proceed()}!"

    @server.resource("docs://{name}", guards=[lambda ctx: ctx.arguments["doc"] == "a"], interceptors=[marked])
    def document(name: str) -> str:
        return f"of {name}"

    message(prompt(arguments=["doc"]), kind="resource", uri="docs://$doc")
    (embedded,) = ask(PipelineClient(server), "prompts/get", name="greet", arguments={"doc": "a"})["messages"]
    assert embedded["content"]["resource"]["text"] == "of a!"
    with pytest.raises(InternalError, match="may not be used here"):
        get(PipelineClient(server), doc="b")


ODD_JSON = (7, True, "text", {"a": 1}, [7], [None], [[]], [{}], ["\ud800"], [""], ["a b"])
ODD_TEXTS = ("", " ", "\u202e\x1b", "a\nb", "http://[", "{x}", "a b/../%zz", "x" * 60)


ODD_VALUES = {JSONField: ODD_JSON, CharField: ODD_TEXTS, TextField: ODD_TEXTS}


@pytest.mark.parametrize("principal", [local_principal(), make_principal(scopes=["read"])], ids=["local", "user"])
@pytest.mark.parametrize("model", [StoredPrompt, StoredArgument, StoredResource])
def test_any_value_in_one_row_leaves_the_other_rows_listed(
    server: Server, model: Any, principal: Any, subtests: pytest.Subtests
) -> None:
    peer = PipelineClient(server, principal=principal)
    prompt("hi $who", name="odd", arguments=[{"name": "who", "choices": ["Ada"], "required": False}])
    resource("docs://odd")
    row = model.objects.get()
    prompt("hi", arguments=["who"])
    resource()
    for field in model._meta.concrete_fields:
        original = getattr(row, field.attname)
        for value in ODD_VALUES.get(type(field), ()):
            with subtests.test(field=field.name, value=value):
                try:
                    with transaction.atomic():
                        model.objects.filter(pk=row.pk).update(**{field.name: value})
                except DataError:
                    continue  # this database cannot store the value
                assert "greet" in names(peer)
                assert "docs://a" in uris(peer)
                assert complete(peer, "greet", "who", "A") == []
        model.objects.filter(pk=row.pk).update(**{field.attname: original})
