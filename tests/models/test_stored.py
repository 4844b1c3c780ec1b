"""Rules, versions and fixtures of stored prompts and resources."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, transaction

from mcp_django.models import (
    StoredArgument,
    StoredMessage,
    StoredPrompt,
    StoredPromptVersion,
    StoredResource,
    StoredState,
)
from mcp_django.models.stored import base as stored_module
from mcp_django.models.stored.resource import MAX_FILE_BYTES, MAX_TEXT_CHARS, check_uri
from mcp_django.models.stored.template_strings import (
    fill,
    fill_uri,
    find_placeholders,
    get_max_filled_length,
    has_valid_placeholders,
)

pytestmark = pytest.mark.django_db


def prompt(text: str = "Hi $who", **fields: Any) -> StoredPrompt:
    row = StoredPrompt.objects.create(**{"name": "greet", **fields})
    StoredArgument.objects.create(prompt=row, position=1, name="who")
    StoredMessage.objects.create(prompt=row, position=1, text=text)
    return row


def refused(row: Any) -> set[str]:
    """The fields that are refused."""
    with pytest.raises(ValidationError) as problem:
        row.full_clean()
    return set(problem.value.message_dict)


# Placeholders


def test_placeholders_of_a_text_are_found_and_validated(subtests: pytest.Subtests) -> None:
    for text, names, good in [
        ("Hi $who and ${who}", ["who"], True),
        ("$b $a $b_1", ["b", "a", "b_1"], True),
        ("$$who costs $$5", [], True),
        ("costs $5", [], False),
        ("${who", [], False),
        ("${}", [], False),
        ("$", [], False),
        ("${a.b}", [], False),
        ("{who} {{ who }} %(who)s", [], True),
        ("$\u017fecret $\u212a", [], False),
    ]:
        with subtests.test(text=text, names=names, good=good):
            assert (find_placeholders(text), has_valid_placeholders(text)) == (names, good)


def test_the_maximum_length_is_computed_before_a_text_is_filled() -> None:
    values = {"a": "x" * 10, "b": "$a"}
    for text in ("$a$a-$b", "$$ $none ${a}"):
        assert len(fill(text, values)) <= get_max_filled_length(text, values) < 60


def test_a_value_cannot_leave_its_place_in_a_uri() -> None:
    assert fill_uri("docs://$a/x?y=$$", {"a": "../b?c=d#e f&ä"}) == "docs://..%2Fb%3Fc%3Dd%23e%20f%26%C3%A4/x?y=$"


# Rules


def test_uris_are_accepted(subtests: pytest.Subtests) -> None:
    for uri in ["docs://refunds", "urn:isbn:1", "https://example.com/a?b=c", "docs://a%20b"]:
        with subtests.test(uri=uri):
            check_uri(uri)


def test_invalid_uris_are_refused(subtests: pytest.Subtests) -> None:
    for uri in ["", "refunds", "/a", "docs:", "docs://a b", "docs://ä", "docs://{a}", "Docs://a", "a://\n"]:
        with subtests.test(uri=uri), pytest.raises(ValidationError):
            check_uri(uri)


def test_a_prompt_that_cannot_be_served_is_refused(subtests: pytest.Subtests) -> None:
    for fields, wrong in [
        ({"name": "with space"}, {"name"}),
        ({"name": "x" * 65}, {"name"}),
        ({"name": "greet\n"}, {"name"}),
        ({"permission": "view_order"}, {"permission"}),
        ({"scopes": ['a"b']}, {"scopes"}),
        ({"scopes": "read"}, {"scopes"}),
        ({"tags": ["x"] * 21}, {"tags"}),
        ({"description": "x" * 10_001}, {"description"}),
    ]:
        with subtests.test(fields=fields, wrong=wrong):
            assert refused(StoredPrompt(**{"name": "greet", **fields})) == wrong


def test_a_name_is_unique_on_a_server() -> None:
    prompt()
    assert refused(StoredPrompt(name="greet")) == {"__all__"}
    StoredPrompt(name="greet", server="staff").full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        prompt()


def test_an_argument_that_cannot_be_given_is_refused(subtests: pytest.Subtests) -> None:
    row = prompt()
    for fields, wrong in [
        ({"name": "2nd"}, {"name"}),
        ({"name": "wer ist"}, {"name"}),
        ({"name": "größe"}, {"name"}),
        ({"default": "x"}, {"default"}),
        ({"required": False, "default": "x", "choices": ["y"]}, {"default"}),
        ({"choices": "abc"}, {"choices"}),
        ({"choices": [1]}, {"choices"}),
        ({"choices": ["x" * 501]}, {"choices"}),
        ({"choices": [str(n) for n in range(501)]}, {"choices"}),
    ]:
        with subtests.test(fields=fields, wrong=wrong):
            assert refused(StoredArgument(prompt=row, **{"name": "size", **fields})) == wrong


def test_a_message_that_cannot_be_sent_is_refused(subtests: pytest.Subtests) -> None:
    row = prompt()
    for fields, wrong in [
        ({"text": " "}, {"text"}),
        ({"text": "costs $5"}, {"text"}),
        ({"text": "x" * 100_001}, {"text"}),
        ({"text": "x", "uri": "docs://a"}, {"uri"}),
        ({"text": "x", "role": "system"}, {"role"}),
        ({"kind": "link"}, {"uri"}),
        ({"kind": "link", "uri": "$who"}, {"uri"}),
        ({"kind": "link", "uri": "docs://a b"}, {"uri"}),
        ({"kind": "resource", "uri": "docs://a", "text": "x"}, {"text"}),
    ]:
        with subtests.test(fields=fields, wrong=wrong):
            assert refused(StoredMessage(prompt=row, **fields)) == wrong


def test_a_link_may_have_an_argument_in_it() -> None:
    StoredMessage(prompt=prompt(), kind="link", uri="docs://$who/${who}").full_clean()


def test_a_resource_that_cannot_be_served_is_refused(subtests: pytest.Subtests) -> None:
    for fields, wrong in [
        ({"uri": "refunds"}, {"uri"}),
        ({"name": ""}, {"name"}),
        ({"mime_type": "markdown"}, {"mime_type"}),
        ({"mime_type": "text/plain\n"}, {"mime_type"}),
        ({"priority": 2}, {"priority"}),
        ({"audience": "everybody"}, {"audience"}),
        ({"data": b"x", "text": "x"}, {"text"}),
        ({"data": b"x" * (MAX_FILE_BYTES + 1)}, {"data"}),
        ({"text": "x" * (MAX_TEXT_CHARS + 1)}, {"text"}),
    ]:
        with subtests.test(fields=fields, wrong=wrong):
            assert refused(StoredResource(**{"uri": "docs://a", "name": "a", **fields})) == wrong


def test_the_size_is_in_bytes() -> None:
    assert StoredResource.objects.create(uri="docs://a", name="a", text="ä").size == 2
    row = StoredResource.objects.create(uri="docs://b", name="b", data=b"123")
    row.data, row.text = None, "12"
    row.save(update_fields=["data", "text"])
    row.refresh_from_db()
    assert (row.size, row.content) == (2, "12")


# Versions


def test_a_version_records_the_user_and_the_changes() -> None:
    ada = get_user_model()._default_manager.create_user("ada")
    row = prompt()
    first = row.record(ada)
    assert (first.number, first.username, first.changes) == (1, "ada", [])
    assert row.record(ada) is None
    row.title = "Greeting"
    row.save()
    row.messages.update(text="Hello $who")
    second = row.record()
    assert (second.number, second.username, second.changes) == (2, "", ["title", "messages"])
    assert second.data["arguments"][0]["name"] == "who"


def test_a_version_keeps_the_name_of_a_deleted_user() -> None:
    ada = get_user_model()._default_manager.create_user("ada")
    row = prompt()
    row.record(ada)
    ada.delete()
    version = row.versions.get()
    assert (version.user, version.username) == (None, "ada")


def test_restoring_creates_a_new_version_and_deletes_none() -> None:
    row = prompt(tags=["a"], scopes=["read"], permission="shop.view_order")
    first = row.record()
    before = row.snapshot()
    row.name, row.permission, row.enabled = "welcome", "", False
    row.save()
    row.arguments.all().delete()
    row.messages.update(text="Bye")
    row.messages.create(position=2, text="Now", role="assistant")
    changed = row.snapshot()
    restored = row.restore(first)
    assert StoredPrompt.objects.get().snapshot() == before
    assert restored.number == 3
    assert [version.data for version in row.versions.order_by("number")] == [before, changed, before]
    assert row.restore(restored) is None


def test_a_failed_restore_changes_nothing() -> None:
    row = prompt()
    first = row.record()
    row.name = "welcome"
    row.save()
    prompt("mine")
    with pytest.raises(ValidationError):
        row.restore(first)
    row = StoredPrompt.objects.get(name="welcome")
    assert row.messages.get().text == "Hi $who"


def test_a_file_is_restored_byte_by_byte() -> None:
    row = StoredResource.objects.create(uri="docs://a", name="a", data=bytes(range(256)))
    first = row.record()
    row.data, row.text = None, "text"
    row.save()
    row.restore(first)
    row.refresh_from_db()
    assert (row.content, row.size) == (bytes(range(256)), 256)


def test_the_oldest_versions_are_deleted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_module, "MAX_VERSIONS", 2)
    row = prompt()
    for number in range(4):
        row.title = str(number)
        row.save()
        row.record()
    assert list(row.versions.values_list("number", flat=True)) == [4, 3]


# Fixtures


def dumped(path: Path, **options: Any) -> Any:
    out = io.StringIO()
    models = ["StoredPrompt", "StoredArgument", "StoredMessage", "StoredResource"]
    names = [f"mcp_django.{model}" for model in models]
    call_command("dumpdata", *names, natural_foreign=True, natural_primary=True, stdout=out, **options)
    path.write_text(out.getvalue())
    return json.loads(out.getvalue())


def test_a_fixture_can_be_loaded_elsewhere_and_again(tmp_path: Path) -> None:
    row = prompt(server="staff", tags=["x"])
    StoredArgument.objects.create(prompt=row, position=2, name="tone", choices=["a", "b"], required=False)
    StoredResource.objects.create(uri="docs://a", name="a", data=b"\x00\xff")
    before, file = row.snapshot(), tmp_path / "stored.json"
    assert "pk" not in dumped(file)[0]
    StoredPrompt.objects.all().delete()
    StoredResource.objects.all().delete()
    prompt(name="other")
    mark = StoredState.objects.get_version()
    for _ in range(2):
        call_command("loaddata", str(file), verbosity=0)
        assert StoredPrompt.objects.get(name="greet").snapshot() == before
        assert StoredResource.objects.get().content == b"\x00\xff"
    assert StoredState.objects.get_version() != mark
    assert StoredArgument.objects.count() == 3
    assert not StoredPromptVersion.objects.exists()


def test_a_fixture_updates_existing_rows(tmp_path: Path) -> None:
    row, file = prompt(), tmp_path / "stored.json"
    dumped(file)
    row.messages.update(text="changed")
    call_command("loaddata", str(file), verbosity=0)
    assert row.messages.get().text == "Hi $who"
    assert StoredPrompt.objects.get().pk == row.pk
