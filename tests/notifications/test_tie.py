from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import models

from mcp_django import publish_changes
from mcp_django.runtime.events.event_log import EventLog
from tests.testapp.models import Book

pytestmark = pytest.mark.django_db
Told = Callable[..., list[str]]


class TravelBook(Book):
    """A proxy, which has the same rows."""

    class Meta:
        proxy = True
        app_label = "testapp"


@pytest.fixture
def tie() -> Iterator[Callable[..., None]]:
    """`publish_changes`, taken back at the end."""
    undone: list[Callable[[], None]] = []
    yield lambda *args, **kwargs: undone.append(publish_changes(*args, **kwargs))
    for undo in undone:
        undo()


@pytest.fixture
def told(django_capture_on_commit_callbacks: Any) -> Told:
    """What clients are told of a piece of work: URIs, and kinds of lists."""

    def run(work: Callable[[], Any]) -> list[str]:
        start = EventLog().head()
        with django_capture_on_commit_callbacks(execute=True):
            work()
        payloads = [event.payload for event in EventLog().read(start)]
        return [said.get("uri") or said["kind"] for said in payloads if "rights" not in said]

    return run


def test_what_is_created_saved_and_deleted_is_told(tie: Any, told: Told) -> None:
    tie(Book, "book://{title}")
    book = Book(title="Emma")
    assert told(book.save) == ["book://Emma", "resources"]
    assert told(book.save) == ["book://Emma"]
    assert told(book.delete) == ["book://Emma", "resources"]


def test_rows_that_no_list_shows_change_no_list(tie: Any, told: Told) -> None:
    tie(Book, "book://{pk}", list_changed=False)
    book = Book(title="Emma")
    assert told(book.save) == [f"book://{book.pk}"]
    uri = f"book://{book.pk}"
    assert told(book.delete) == [uri]


def test_several_uris_related_ones_and_functions(tie: Any, told: Told) -> None:
    tie(
        Book,
        "books://all",
        "user://{owner__username}/books",
        lambda book: [f"book://{book.pk}", f"book://{book.pk}/cover"],
        lambda book: None,
        list_changed=False,
    )
    owner = User.objects.create(username="jane")
    book = Book(title="Emma", owner=owner)
    assert told(book.save) == ["books://all", "user://jane/books", f"book://{book.pk}", f"book://{book.pk}/cover"]


def test_what_has_no_uri_is_saved_and_not_told(tie: Any, told: Told, caplog: pytest.LogCaptureFixture) -> None:
    tie(Book, "user://{owner__username}/books", lambda book: 1 // 0, "book://{title}", list_changed=False)
    assert told(Book(title="").save) == []
    assert "has no URI" in caplog.text
    assert "Change not published" in caplog.text


def test_values_are_encoded_as_the_template_reads_them(tie: Any, told: Told) -> None:
    tie(Book, "book://{title}", list_changed=False)
    assert told(Book(title="Sense & Sensibility").save) == ["book://Sense%20%26%20Sensibility"]


def test_relations_are_told_from_both_sides(tie: Any, told: Told) -> None:
    tie(Group, "group://{name}", list_changed=False)
    one, other = Group.objects.create(name="one"), Group.objects.create(name="other")
    permission, second = Permission.objects.all()[:2]
    assert told(lambda: one.permissions.add(permission, second)) == ["group://one"]
    assert told(lambda: one.permissions.add(permission)) == []
    assert told(lambda: permission.group_set.add(one, other)) == ["group://other"]
    assert told(lambda: one.permissions.remove(second)) == ["group://one"]
    assert sorted(told(permission.group_set.clear)) == ["group://one", "group://other"]
    one.permissions.add(permission)
    assert told(one.permissions.clear) == ["group://one"]


def test_models_that_inherit_are_included_early_and_late(tie: Any, told: Told) -> None:
    tie(Book, "book://{title}", list_changed=False)

    class LateBook(Book):
        class Meta:
            proxy = True
            app_label = "testapp"

    assert told(TravelBook(title="Istanbul").save) == ["book://Istanbul"]
    assert told(LateBook(title="Late").save) == ["book://Late"]


def test_a_deleted_queryset_is_told_row_by_row_and_an_updated_one_is_not(tie: Any, told: Told) -> None:
    tie(Book, "book://{title}", list_changed=False)
    assert told(lambda: Book.objects.bulk_create([Book(title="a"), Book(title="b")])) == []
    assert told(lambda: Book.objects.update(pages=1)) == []
    assert sorted(told(Book.objects.all().delete)) == ["book://a", "book://b"]


def test_one_server_can_be_named(tie: Any, settings: Any, django_capture_on_commit_callbacks: Any) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}}
    tie(Book, "book://{title}", server="staff", list_changed=False)
    start = EventLog().head()
    with django_capture_on_commit_callbacks(execute=True):
        Book(title="Emma").save()
    assert [event.topic for event in EventLog().read(start)] == ["changes:staff"]


def test_it_can_be_taken_back(told: Told) -> None:
    undo = publish_changes(Book, "book://{title}")
    undo()
    undo()
    assert told(Book(title="Emma").save) == []


def test_a_tie_that_cannot_hold_is_refused(subtests: pytest.Subtests) -> None:
    for uris, complaint in [
        ((), "requires at least one URI"),
        (("book://{isbn}",), "no attribute 'isbn'"),
        (("book://{title",), "URI template"),
    ]:
        with subtests.test(uris=uris, complaint=complaint), pytest.raises(ValueError, match=complaint):
            publish_changes(Book, *uris)


def test_models_still_being_loaded_are_tied_when_they_are(tie: Any, told: Told) -> None:
    class Shelf(models.Model):
        books = models.ManyToManyField("testapp.Book", through="testapp.Place")

        class Meta:
            app_label = "testapp"
            managed = False

    tie(Shelf, "shelf://{pk}")
    assert Shelf._meta.local_many_to_many
