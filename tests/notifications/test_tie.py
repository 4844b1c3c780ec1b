from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import models

from mcp_django import publish_changes
from mcp_django.runtime.events.event_log import EventLog
from tests.testapp.models import Book

pytestmark = pytest.mark.django_db
Notifications = Callable[..., list[str]]


class TravelBook(Book):
    """A proxy model with the same rows."""

    class Meta:
        proxy = True
        app_label = "testapp"


@pytest.fixture
def publish() -> Iterator[Callable[..., None]]:
    """Call `publish_changes`, and undo it at the end."""
    undone: list[Callable[[], None]] = []
    yield lambda *args, **kwargs: undone.append(publish_changes(*args, **kwargs))
    for undo in undone:
        undo()


@pytest.fixture
def notifications(django_capture_on_commit_callbacks: Any) -> Notifications:
    """Return the notifications of a piece of work: URIs, and kinds of lists."""

    def run(work: Callable[[], Any]) -> list[str]:
        start = EventLog().head()
        with django_capture_on_commit_callbacks(execute=True):
            work()
        payloads = [event.payload for event in EventLog().read(start)]
        return [said.get("uri") or said["kind"] for said in payloads if "rights" not in said]

    return run


def test_created_saved_and_deleted_rows_are_published(publish: Any, notifications: Notifications) -> None:
    publish(Book, "book://{title}")
    book = Book(title="Emma")
    assert notifications(book.save) == ["book://Emma", "resources"]
    assert notifications(book.save) == ["book://Emma"]
    assert notifications(book.delete) == ["book://Emma", "resources"]


def test_rows_in_no_list_change_no_list(publish: Any, notifications: Notifications) -> None:
    publish(Book, "book://{pk}", list_changed=False)
    book = Book(title="Emma")
    assert notifications(book.save) == [f"book://{book.pk}"]
    uri = f"book://{book.pk}"
    assert notifications(book.delete) == [uri]


def test_uris_may_be_several_related_or_functions(publish: Any, notifications: Notifications) -> None:
    publish(
        Book,
        "books://all",
        "user://{owner__username}/books",
        lambda book: [f"book://{book.pk}", f"book://{book.pk}/cover"],
        lambda book: None,
        list_changed=False,
    )
    owner = User.objects.create(username="jane")
    book = Book(title="Emma", owner=owner)
    assert notifications(book.save) == [
        "books://all",
        "user://jane/books",
        f"book://{book.pk}",
        f"book://{book.pk}/cover",
    ]


def test_a_row_without_a_uri_is_saved_and_not_published(
    publish: Any, notifications: Notifications, caplog: pytest.LogCaptureFixture
) -> None:
    publish(Book, "user://{owner__username}/books", lambda book: 1 // 0, "book://{title}", list_changed=False)
    assert notifications(Book(title="").save) == []
    assert "has no URI" in caplog.text
    assert "Change not published" in caplog.text


def test_values_are_encoded_as_the_template_reads_them(publish: Any, notifications: Notifications) -> None:
    publish(Book, "book://{title}", list_changed=False)
    assert notifications(Book(title="Sense & Sensibility").save) == ["book://Sense%20%26%20Sensibility"]


def test_relations_are_published_from_both_sides(publish: Any, notifications: Notifications) -> None:
    publish(Group, "group://{name}", list_changed=False)
    one, other = Group.objects.create(name="one"), Group.objects.create(name="other")
    permission, second = Permission.objects.all()[:2]
    assert notifications(lambda: one.permissions.add(permission, second)) == ["group://one"]
    assert notifications(lambda: one.permissions.add(permission)) == []
    assert notifications(lambda: permission.group_set.add(one, other)) == ["group://other"]
    assert notifications(lambda: one.permissions.remove(second)) == ["group://one"]
    assert sorted(notifications(permission.group_set.clear)) == ["group://one", "group://other"]
    one.permissions.add(permission)
    assert notifications(one.permissions.clear) == ["group://one"]


def test_subclasses_are_included_whenever_they_are_defined(publish: Any, notifications: Notifications) -> None:
    publish(Book, "book://{title}", list_changed=False)

    class LateBook(Book):
        class Meta:
            proxy = True
            app_label = "testapp"

    assert notifications(TravelBook(title="Istanbul").save) == ["book://Istanbul"]
    assert notifications(LateBook(title="Late").save) == ["book://Late"]


def test_a_queryset_delete_is_published_by_row_and_an_update_is_not(publish: Any, notifications: Notifications) -> None:
    publish(Book, "book://{title}", list_changed=False)
    assert notifications(lambda: Book.objects.bulk_create([Book(title="a"), Book(title="b")])) == []
    assert notifications(lambda: Book.objects.update(pages=1)) == []
    assert sorted(notifications(Book.objects.all().delete)) == ["book://a", "book://b"]


def test_one_server_can_be_named(publish: Any, settings: Any, django_capture_on_commit_callbacks: Any) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}}
    publish(Book, "book://{title}", server="staff", list_changed=False)
    start = EventLog().head()
    with django_capture_on_commit_callbacks(execute=True):
        Book(title="Emma").save()
    assert [event.topic for event in EventLog().read(start)] == ["changes:staff"]


def test_it_can_be_undone(notifications: Notifications) -> None:
    undo = publish_changes(Book, "book://{title}")
    undo()
    undo()
    assert notifications(Book(title="Emma").save) == []


def test_invalid_options_are_refused(subtests: pytest.Subtests) -> None:
    for uris, complaint in [
        ((), "requires at least one URI"),
        (("book://{isbn}",), "no attribute 'isbn'"),
        (("book://{title",), "URI template"),
    ]:
        with subtests.test(uris=uris, complaint=complaint), pytest.raises(ValueError, match=complaint):
            publish_changes(Book, *uris)


def test_models_that_load_later_are_connected_then(publish: Any, notifications: Notifications) -> None:
    class BookCase(models.Model):
        books = models.ManyToManyField("testapp.Book", through="testapp.Place")

        class Meta:
            app_label = "testapp"
            managed = False

    publish(BookCase, "shelf://{pk}")
    assert BookCase._meta.local_many_to_many
