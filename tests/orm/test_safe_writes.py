"""Dry runs, versions, idempotency keys and confirmations of writes."""

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext

from mcp_django import Context
from mcp_django.models import OnceResult
from mcp_django.orm.writes import base
from mcp_django.orm.writes.confirmation import require_confirmation
from mcp_django.protocol.errors import MissingClientCapability
from tests.orm.toolsets import principal, shop
from tests.orm.writing import Categories, Orders, Products, as_user, call, get_error, get_result, user
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient
from tests.shop.models import Category, Product
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
ERAS = [STATELESS, HANDSHAKE]


@pytest.fixture
def tea() -> Product:
    return Product.objects.create(name="Tea", stock=3)


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of saved rows, added on commit."""
    names: list[str] = []

    def add_on_commit(sender: Any, instance: Any, **_: Any) -> None:
        transaction.on_commit(lambda: names.append(instance.name))

    post_save.connect(add_on_commit, sender=Product)
    yield names
    post_save.disconnect(add_on_commit, sender=Product)


def test_a_dry_run_shows_the_result_and_writes_nothing(
    tea: Product, committed: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    client = as_user(user())
    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        changed = get_result(client, "product_update", pk=tea.pk, values={"stock": 9}, dry_run=True)
        made = get_result(client, "product_create", values={"name": "Coffee"}, dry_run=True)
    assert (changed["item"]["stock"], changed["changed"], changed["dry_run"]) == (9, ["stock"], True)
    assert (made["pk"], made["item"]["pk"], made["item"]["name"]) == (None, None, "Coffee")
    assert Product.objects.get().stock == 3
    assert (callbacks, committed) == ([], [])
    assert not LogEntry.objects.exists()
    with django_capture_on_commit_callbacks(execute=True):
        get_result(client, "product_update", pk=tea.pk, values={"stock": 9})
    assert committed == ["Tea"]


def test_a_dry_run_finds_errors(tea: Product) -> None:
    assert "weight" in get_error(as_user(user()), "product_update", pk=tea.pk, values={"weight": "heavy"}, dry_run=True)
    assert "category" in get_error(
        as_user(user("b")), "product_update", pk=tea.pk, values={"category": "x"}, dry_run=True
    )


def test_a_write_with_the_current_version_succeeds(tea: Product) -> None:
    client = as_user(user())
    seen = get_result(client, "product_get", pk=tea.pk)["_version"]
    again = get_result(client, "product_update", pk=tea.pk, values={"stock": 4}, if_match=seen)["item"]["_version"]
    assert again != seen
    assert again == get_result(client, "product_get", pk=tea.pk)["_version"]
    assert again == get_result(client, "product_get", pk=tea.pk, fields=["name"])["_version"]
    text = get_error(client, "product_update", pk=tea.pk, values={"stock": 5}, if_match=seen)
    assert "has changed since" in text
    assert "has changed since" in get_error(client, "product_delete", pk=tea.pk, if_match=seen)
    assert Product.objects.get().stock == 4
    get_result(client, "product_delete", pk=tea.pk, if_match=again)


def test_hidden_fields_do_not_change_the_version(tea: Product) -> None:
    client = as_user(user())
    seen = get_result(client, "product_get", pk=tea.pk)["_version"]
    Product.objects.update(secret_token="hunter3", cost=7)
    assert get_result(client, "product_get", pk=tea.pk)["_version"] == seen


class VisibleCategories(Categories):
    """Categories without those whose slug begins with "hidden"."""

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).exclude(slug__startswith="hidden")


def test_a_version_does_not_reveal_references_to_hidden_rows(tea: Product) -> None:
    for slug in ("drinks", "hidden", "hidden-too"):
        Category.objects.create(slug=slug, name=slug)
    client = as_user(user(), VisibleCategories, Products)

    def get_version(slug: str | None) -> str:
        Product.objects.update(category=slug)
        return str(get_result(client, "product_get", pk=tea.pk, fields=["category"])["_version"])

    empty, visible = get_version(None), get_version("drinks")
    assert get_version("hidden") == get_version("hidden-too") == empty != visible

    for dry_run in (True, False):
        changed = get_result(client, "product_update", pk=tea.pk, values={"stock": 4}, if_match=empty, dry_run=dry_run)
    assert changed["item"]["_version"] == get_result(client, "product_get", pk=tea.pk)["_version"] != empty
    Product.objects.update(category="drinks")
    assert "has changed since" in get_error(client, "product_delete", pk=tea.pk, if_match=changed["item"]["_version"])


def test_the_version_is_computed_for_each_caller(tea: Product) -> None:
    class OwnCategories(Categories):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).filter(slug=ctx.user.username)

    sue, tim = (
        PipelineClient(server, principal=principal(user(name)))
        for server in [shop(OwnCategories, Products)]
        for name in ("sue", "tim")
    )
    empty = get_result(sue, "product_get", pk=tea.pk, fields=["name"])["_version"]
    Product.objects.update(category=Category.objects.create(slug="sue"))
    assert get_result(sue, "product_get", pk=tea.pk, fields=["name"])["_version"] != empty
    assert get_result(tim, "product_get", pk=tea.pk, fields=["name"])["_version"] == empty


def test_a_write_does_not_report_that_a_hidden_reference_was_replaced(tea: Product) -> None:
    Category.objects.create(slug="hidden", name="Hidden")
    client = as_user(user(), VisibleCategories, Products)
    Product.objects.update(category="hidden")
    changed = get_result(client, "product_update", pk=tea.pk, values={"category": None})
    assert (changed["changed"], Product.objects.get().category) == ([], None)
    (entry,) = LogEntry.objects.all()
    assert "category" in entry.change_message.lower()


def test_a_declared_field_is_the_version(tea: Product) -> None:
    class Versioned(Products):
        version_field = "stock"

    client = as_user(user(), Versioned)
    seen = get_result(client, "product_get", pk=tea.pk)["_version"]
    Product.objects.update(name="Green tea")
    get_result(client, "product_update", pk=tea.pk, values={"stock": 4}, if_match=seen)
    assert "has changed" in get_error(client, "product_update", pk=tea.pk, values={"stock": 5}, if_match=seen)


def test_a_repetition_with_an_idempotency_key_returns_the_first_result() -> None:
    client = as_user(user())
    first = call(client, "product_create", values={"name": "Tea"}, idempotency_key="k1")
    again = call(client, "product_create", values={"name": "Tea"}, idempotency_key="k1")
    assert first == again
    assert Product.objects.count() == 1
    text = get_error(client, "product_create", values={"name": "Coffee"}, idempotency_key="k1")
    assert "used with other arguments before" in text
    get_result(client, "product_create", values={"name": "Tea"}, idempotency_key="k2")
    assert Product.objects.count() == 2


def test_an_idempotency_key_belongs_to_its_caller() -> None:
    get_result(as_user(user()), "product_create", values={"name": "Tea"}, idempotency_key="k1")
    get_result(as_user(user("tim")), "product_create", values={"name": "Tea"}, idempotency_key="k1")
    assert Product.objects.count() == 2


def test_an_idempotency_key_is_released_when_the_write_fails(tea: Product) -> None:
    client = as_user(user())
    get_error(client, "product_update", pk=tea.pk, values={"category": "nowhere"}, idempotency_key="k1")
    assert not OnceResult.objects.exists()
    get_result(client, "product_update", pk=tea.pk, values={"stock": 7}, idempotency_key="k1")
    # And a dry run does not use it up.
    get_result(client, "product_update", pk=tea.pk, values={"stock": 8}, idempotency_key="k2", dry_run=True)
    get_result(client, "product_update", pk=tea.pk, values={"stock": 9}, idempotency_key="k2")


def test_an_expired_idempotency_key_counts_as_new() -> None:
    client = as_user(user())
    get_result(client, "product_create", values={"name": "Tea"}, idempotency_key="k1")
    from django.utils import timezone

    OnceResult.objects.update(expires=timezone.now())
    get_result(client, "product_create", values={"name": "Tea"}, idempotency_key="k1")
    assert Product.objects.count() == 2


class Asking(Products):
    confirm = ("delete", "update", "create")


class RecordingUser:
    """A user with one answer, and a list of the questions."""

    def __init__(self, action: str = "accept") -> None:
        self.action = action
        self.messages: list[str] = []

    def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.messages.append(params["message"])
        return {"action": self.action, "content": {}}


def test_the_user_is_asked_before_a_row_is_deleted(tea: Product, subtests: pytest.Subtests) -> None:
    """Before a transaction opens: inside of one the engine does not ask."""
    for version in ERAS:
        with subtests.test(version=version), rolled_back():
            person = RecordingUser()
            client = as_user(user(), Asking, version=version, answer=person)
            get_result(client, "product_delete", pk=tea.pk)
            assert person.messages == [f"Delete product Tea ({tea.pk})?"]
            assert not Product.objects.exists()


def test_a_row_is_kept_when_the_user_declines(tea: Product, subtests: pytest.Subtests) -> None:
    for version in ERAS:
        for action in ("decline", "cancel"):
            with subtests.test(version=version, action=action), rolled_back():
                client = as_user(user(), Asking, version=version, answer=RecordingUser(action))
                assert "did not agree" in get_error(client, "product_delete", pk=tea.pk)
                assert Product.objects.exists()


def test_the_question_lists_the_written_values(tea: Product, subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version), rolled_back():
            person = RecordingUser()
            client = as_user(user(), Asking, version=version, answer=person)
            get_result(client, "product_update", pk=tea.pk, values={"stock": 9, "is_new": True})
            get_result(client, "product_create", values={"name": "Coffee"})
            assert person.messages == [
                f"Change product Tea ({tea.pk})?\nstock: 9\nis_new: true",
                "Add this product?\nname: Coffee",
            ]


def test_a_question_loads_its_row_once(tea: Product, subtests: pytest.Subtests) -> None:
    for tool, values in (("product_update", {"values": {"stock": 9}}), ("product_delete", {})):
        with subtests.test(tool=tool), CaptureQueriesContext(connection) as captured:
            client = as_user(user(tool), Asking, version=HANDSHAKE, answer=RecordingUser("decline"))
            get_error(client, tool, pk=tea.pk, **values)
            assert len([query for query in captured if 'FROM "shop_product"' in query["sql"]]) == 1


def test_values_and_labels_cannot_imitate_lines_of_the_question(tea: Product) -> None:
    Product.objects.filter(pk=tea.pk).update(name="Tea?\nNothing is changed")
    person = RecordingUser()
    client = as_user(user(), Asking, answer=person)
    get_result(client, "product_update", pk=tea.pk, values={"description": "x\r\nstock: 3", "stock": 0})
    assert person.messages == [f"Change product Tea? Nothing is changed ({tea.pk})?\ndescription: x stock: 3\nstock: 0"]


def test_the_question_lists_the_written_inlines(tea: Product) -> None:
    class AskingOrders(Orders):
        confirm = ("create",)

    person = RecordingUser()
    client = as_user(user(), AskingOrders, answer=person)
    lines = {"add": [{"product": tea.pk, "quantity": 2}]}
    get_result(client, "order_create", values={"reference": "A1"}, inlines={"lines": lines})
    (message,) = person.messages
    assert message.splitlines()[2] == f'lines: add 1: [{{"product":{tea.pk},"quantity":2}}]'


def test_an_impossible_write_is_refused_without_a_question(tea: Product) -> None:
    person = RecordingUser()
    client = as_user(user(), Asking, answer=person)
    get_error(client, "product_update", pk=tea.pk, values={"category": "nowhere"})
    get_error(client, "product_delete", pk=9999)
    get_result(client, "product_delete", pk=tea.pk, dry_run=True)
    assert person.messages == []


def test_a_row_that_changes_during_the_question_is_not_deleted(tea: Product, subtests: pytest.Subtests) -> None:
    def check(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def meanwhile(*asked: Any, **options: Any) -> None:
            require_confirmation(*asked, **options)
            Product.objects.update(stock=77)

        monkeypatch.setattr(base, "require_confirmation", meanwhile)
        client = as_user(user(), Asking, version=version, answer=RecordingUser())
        assert "changed before the confirmation" in get_error(client, "product_delete", pk=tea.pk)
        assert Product.objects.exists()

    for version in ERAS:
        with subtests.test(version=version), rolled_back(), pytest.MonkeyPatch.context() as monkeypatch:
            check(version, monkeypatch)


def test_a_deletion_that_grows_during_the_question_is_not_done(subtests: pytest.Subtests) -> None:
    def check(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        class AskingCategories(Categories):
            confirm = ("delete",)

        drinks = Category.objects.create(slug="drinks", name="Drinks")

        def meanwhile(*asked: Any, **options: Any) -> None:
            require_confirmation(*asked, **options)
            Category.objects.create(slug="teas", name="Teas", parent=drinks)

        monkeypatch.setattr(base, "require_confirmation", meanwhile)
        client = as_user(user(), AskingCategories, version=version, answer=RecordingUser())
        assert "changed before the confirmation" in get_error(client, "category_delete", pk="drinks")
        assert Category.objects.count() == 2

    for version in ERAS:
        with subtests.test(version=version), rolled_back(), pytest.MonkeyPatch.context() as monkeypatch:
            check(version, monkeypatch)


def test_an_agreement_to_an_earlier_state_of_the_row_is_requested_again(tea: Product) -> None:
    """In the stateless era days may lie between two rounds."""
    client = as_user(user(), Asking)
    asked = call(client, "product_delete", pk=tea.pk)
    (key,) = asked["inputRequests"]
    Product.objects.update(stock=77)
    answered = {
        "name": "product_delete",
        "arguments": {"pk": tea.pk},
        "requestState": asked["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {}}},
    }
    assert async_to_sync(client.request)("tools/call", answered)["resultType"] == "input_required"
    assert Product.objects.exists()


def test_an_agreement_that_was_not_asked_for_writes_nothing(tea: Product) -> None:
    """The key of a confirmation is predictable: it is a digest of its text."""
    client = as_user(user(), Asking)
    (key,) = call(client, "product_delete", pk=tea.pk)["inputRequests"]
    unasked = {
        "name": "product_delete",
        "arguments": {"pk": tea.pk},
        "inputResponses": {key: {"action": "accept", "content": {}}},
    }
    result = async_to_sync(client.request)("tools/call", unasked)
    assert list(result["inputRequests"]) == [key]
    assert Product.objects.exists()


def test_without_elicitation_a_confirmed_write_is_refused(tea: Product) -> None:
    client = as_user(user(), Asking, version=HANDSHAKE, capabilities={})
    assert "elicitation" in get_error(client, "product_delete", pk=tea.pk)
    with pytest.raises(MissingClientCapability):
        call(as_user(user("tim"), Asking, capabilities={}), "product_delete", pk=tea.pk)
    assert Product.objects.exists()


def test_a_toolset_may_write_without_elicitation(tea: Product) -> None:
    class Trusting(Asking):
        confirm_fallback = "proceed"

    get_result(as_user(user(), Trusting, capabilities={}), "product_delete", pk=tea.pk)
    assert not Product.objects.exists()
    product = Product.objects.create(name="Tea")
    get_error(as_user(user("tim"), Trusting, answer=RecordingUser("decline")), "product_delete", pk=product.pk)


def test_one_agreement_permits_one_write() -> None:
    client = as_user(user(), Asking)
    values = {"values": {"name": "Tea"}}
    asked = call(client, "product_create", **values)
    (key,) = asked["inputRequests"]
    again = {
        "name": "product_create",
        "arguments": values,
        "requestState": asked["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {}}},
    }
    assert not async_to_sync(client.request)("tools/call", again)["isError"]
    from mcp_django.protocol.errors import InvalidParams

    with pytest.raises(InvalidParams):
        async_to_sync(client.request)("tools/call", again)
    assert Product.objects.count() == 1


def test_a_repetition_under_an_idempotency_key_does_not_ask_again(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version), rolled_back():
            person = RecordingUser()
            client = as_user(user(), Asking, version=version, answer=person)
            for _ in range(2):
                get_result(client, "product_create", values={"name": "Tea"}, idempotency_key="k1")
            assert len(person.messages) == 1
            assert Product.objects.count() == 1


def test_confirmed_writes_work_with_atomic_requests(tea: Product) -> None:
    """ATOMIC_REQUESTS: the write has its own, because a question must come before it."""
    server = shop(Asking, options={"atomic": ("default",)})
    get_result(PipelineClient(server, principal=principal(user()), answer=RecordingUser()), "product_delete", pk=tea.pk)
    assert not Product.objects.exists()


def test_writes_of_a_hook_are_rolled_back_with_the_rest(tea: Product) -> None:
    class Noting(Products):
        def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
            super().save_model(ctx, obj, form, change)
            Product.objects.create(name="A note")

    get_result(as_user(user(), Noting), "product_update", pk=tea.pk, values={"stock": 1}, dry_run=True)
    assert Product.objects.get().stock == 3


def test_a_question_shows_the_stored_text_without_hidden_characters(tea: Product) -> None:
    Product.objects.filter(pk=tea.pk).update(name="gp\u202ej.exe\u200b")
    person = RecordingUser()
    client = as_user(user(), Asking, answer=person)
    get_result(client, "product_update", pk=tea.pk, values={"description": "no\u2066thing\x07"})
    assert person.messages == [f"Change product gpj.exe ({tea.pk})?\ndescription: nothing"]
