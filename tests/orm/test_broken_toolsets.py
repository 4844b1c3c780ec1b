"""A model, a column or a form that fails takes no other tool away."""

from typing import Any, ClassVar

import pytest
from django import forms
from django.core.checks import CheckMessage
from django.db import DatabaseError, models
from django.test import override_settings
from django.test.utils import isolate_apps

from mcp_django import ModelToolset, register
from mcp_django.checks import declarations, toolsets
from mcp_django.notifications.model_signals import publish_changes
from mcp_django.orm.codecs import get_codec
from mcp_django.orm.generic import GenericTools
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.registry import Registry
from tests.orm.toolsets import Categories, Products, Tags, data
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server
from tests.shop.models import Category, Product, Tag

pytestmark = pytest.mark.django_db
READING = ["tag_count", "tag_describe", "tag_get", "tag_list"]


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of this test, which collects problems."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    monkeypatch.setattr(registry, "MARKED_METHODS", registry.MarkedMethods())
    return registry.get_registry("default")


def serve(found: Registry, version: str = STATELESS, **given: Any) -> PipelineClient:
    return PipelineClient(make_server(registry=found, **given), version=version)


def check() -> list[CheckMessage]:
    """The messages of `manage.py check` about declarations and toolsets."""
    return [*declarations.check_declarations(), *toolsets.check_toolsets()]


class BrokenField(forms.CharField):
    """A form field that cannot be created."""

    def __init__(self, **options: Any) -> None:
        raise TypeError("'NoneType' object is not iterable")


class BrokenNameForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    class Meta:
        fields: ClassVar[list[str]] = ["name"]
        field_classes: ClassVar[dict[str, Any]] = {"name": BrokenField}


class WritableTags(Tags):
    form = BrokenNameForm
    tools = ("describe", "list", "get", "count", "create", "update")


def define(name: str, /, **attributes: Any) -> type[models.Model]:
    """A model that no table has."""
    meta = type("Meta", (), {"app_label": "shop"})
    return type(name, (models.Model,), {"__module__": "tests.shop.models", "Meta": meta, **attributes})


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_form_that_cannot_be_built_leaves_out_the_tools_that_write(
    found: Registry, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    register(Tag)(WritableTags)
    register(Category)(Categories)
    client = serve(found, version=version)
    for _ in range(2):
        assert await client.names() == sorted([*READING, *(name.replace("tag", "category") for name in READING)])
    assert await data(client, "tag_describe")
    [record] = caplog.records
    for text in ("ERROR", "WritableTags", "'name'", "TypeError: 'NoneType' object is not iterable"):
        assert text in f"{record.levelname} {record.getMessage()}"


@pytest.mark.parametrize("style", ["per_model", "generic"])
def test_the_check_names_class_and_field_once(found: Registry, style: str) -> None:
    with override_settings(MCP={"ORM_STYLE": style}):
        register(Tag)(WritableTags)
        register(Category)(Categories)
        for _ in range(2):
            [message] = check()
    assert message.id == "mcp_django.E004"
    for text in ("WritableTags", "the form field 'name'", "readonly_fields", "TypeError: 'NoneType' object is not"):
        assert text in message.msg
    assert "DEBUG" in str(message.hint)


@override_settings(MCP={"ORM_STYLE": "generic"})
async def test_generic_tools_leave_out_a_model_for_which_they_fail(found: Registry) -> None:
    class WritableCategories(Categories):
        tools = ("describe", "list", "create")

    register(Tag)(WritableTags)
    register(Category)(WritableCategories)
    client = serve(found, providers=[GenericTools(found)])
    listed = {entry["name"]: entry["inputSchema"] for entry in (await client.request("tools/list"))["tools"]}
    assert listed["models_create"]["properties"]["model"]["enum"] == ["shop.Category"]
    assert listed["models_list"]["properties"]["model"]["enum"] == ["shop.Category", "shop.Tag"]
    assert (await data(client, "models_describe", model="shop.Tag"))["model"] == "shop.Tag"


def test_a_missing_log_is_reported_once_for_each_toolset(found: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.orm.tools.history.get_log_entry_model", lambda: None)
    for model, kind in ((Tag, Tags), (Category, Categories)):
        register(model)(type(f"Logged{kind.__name__}", (kind,), {"tools": ("list", "history")}))
    messages = check()
    assert [message.id for message in messages] == ["mcp_django.E004"] * 2
    assert ["LoggedTags" in messages[0].msg, "LoggedCategories" in messages[1].msg] == [True, True]
    assert [one.name for one in found.tools] == ["category_list", "tag_list"]


@isolate_apps("tests.shop")
def test_a_column_that_fails_refuses_its_toolset_and_no_related_one(
    found: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(field: Any) -> Any:
        if isinstance(field, models.CharField):
            raise AttributeError("no type")
        return get_codec(field)

    for module in ("base", "exposed_fields"):
        monkeypatch.setattr(f"mcp_django.orm.declaration.{module}.get_codec", fail)
    odd = define("Odd", name=models.CharField(max_length=5))
    child = define("OddChild", odd=models.ForeignKey(odd, models.CASCADE))
    register(odd)(type("Odds", (ModelToolset,), {"fields": ["name"]}))
    register(child)(type("OddChildren", (ModelToolset,), {"fields": ["odd"]}))
    [message] = check()
    assert message.id == "mcp_django.E004"
    for text in ("Odds", "'name'", "AttributeError: no type"):
        assert text in message.msg
    assert next(one.name for one in found.tools) == "oddchild_count"
    assert len(found.toolsets) == 1


@isolate_apps("tests.shop")
def test_texts_and_choices_that_fail_are_one_error_and_leave_the_rest(
    found: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise LookupError("no catalogue")

    def choose() -> Any:
        raise ConnectionError("no service")

    named = define("Named", name=models.CharField(max_length=5))
    named._meta.verbose_name = Broken()  # type: ignore[assignment]
    chosen = define("Chosen", kind=models.CharField(max_length=5, choices=choose))
    kinds = {"fields": "__all__", "exclude": [], "list_filter": "__all__", "tools": ["list", "get", "create"]}
    register(named)(type("NamedRows", (ModelToolset,), kinds))
    register(chosen)(type("ChosenRows", (ModelToolset,), kinds))
    register(Tag)(Tags)
    texts = [message.msg for message in check()]
    assert [sum(name in text for text in texts) for name in ("NamedRows", "ChosenRows", "Tags")] == [1, 2, 0]
    assert {one.name for one in found.tools} >= {*READING}
    assert len(caplog.records) == 3


def test_a_declaration_that_reads_a_missing_table_does_not_stop_migrate(found: Registry) -> None:
    def choose() -> Any:
        raise DatabaseError("no such table: shop_kind")

    class KindForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
        kind = forms.ChoiceField(choices=choose)

    register(Tag)(type("KindTags", (Tags,), {"form": KindForm, "tools": ("list", "create")}))
    [message] = check()
    assert (message.id, "KindTags" in message.msg, "'kind'" in message.msg) == ("mcp_django.W013", True, True)
    assert not message.is_serious()


@isolate_apps("tests.shop")
def test_an_abstract_child_with_a_many_to_many_field_has_no_rows_to_publish() -> None:
    parent = define("Parent", name=models.CharField(max_length=5))
    meta = type("Meta", (), {"app_label": "shop", "abstract": True})
    abstract = type(
        "AbstractChild",
        (parent,),
        {"__module__": "tests.shop.models", "Meta": meta, "tags": models.ManyToManyField(Tag)},
    )
    child = type(
        "Child", (abstract,), {"__module__": "tests.shop.models", "Meta": type("Meta", (), {"app_label": "shop"})}
    )
    publish_changes(parent, "shop://{pk}")()
    assert child._meta.local_many_to_many  # type: ignore[attr-defined]


def test_a_receiver_that_fails_refuses_the_toolset_and_its_references(
    found: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AttributeError("'NoneType' object has no attribute '_meta'")

    register(Product)(Products)
    monkeypatch.setattr("mcp_django.orm.toolset.model_registered.send", fail)
    register(Category)(Categories)
    [products] = found.toolsets
    assert products.exposure.fields["category"].target is None
    assert ["Categories" in str(problem) for problem in found.problems] == [True]


@isolate_apps("tests.shop")
async def test_a_manager_is_not_called_until_a_form_is_built(found: Registry) -> None:
    class ScopedManager(models.Manager[Any]):
        def get_queryset(self) -> Any:
            if not SCOPES:
                raise RuntimeError("a scope on dimension(s) event needs to be active")
            return super().get_queryset().filter(name__in=SCOPES)

    owner = define("Scoped", name=models.CharField(max_length=5), objects=ScopedManager())
    relations: dict[str, Any] = {
        "one": models.ForeignKey(owner, models.CASCADE),
        "only": models.OneToOneField(owner, models.CASCADE, related_name="+"),
        "many": models.ManyToManyField(owner, related_name="+"),
    }
    rows = define("ScopedRow", objects=ScopedManager(), **relations)
    writing = {"fields": [*relations], "tools": ["list", "create", "update", "describe"], "list_filter": "__all__"}
    register(rows)(type("ScopedRows", (ModelToolset,), writing))
    assert check() == []
    [toolset] = found.toolsets

    entries = (await serve(found).request("tools/list"))["tools"]
    assert len(entries) == 4
    SCOPES.append("a")
    try:
        form = toolset.default_form()
        assert all(
            "'a'" in str(form.fields[name].queryset.query) or "a" in str(form.fields[name].queryset.query)
            for name in relations
        )
    finally:
        SCOPES.clear()


SCOPES: list[str] = []


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_toolset_registered_after_the_first_list_changes_the_schemas_of_related_ones(
    found: Registry, version: str
) -> None:
    await Category.objects.acreate(slug="tea", name="Tea")
    product = await Product.objects.acreate(name="Green", category_id="tea")
    register(Product)(Products)
    client = serve(found, version=version)

    async def get_type() -> Any:
        listed = {entry["name"]: entry for entry in (await client.request("tools/list"))["tools"]}
        return listed["product_get"]["outputSchema"]["properties"]["category"]["anyOf"][0]["type"]

    assert await get_type() == "string"
    assert (await data(client, "product_get", pk=product.pk))["category"] == "tea"
    before = found.version
    register(Category)(Categories)
    assert found.version > before
    assert await get_type() == "object"
    assert (await data(client, "product_get", pk=product.pk))["category"]["label"] == "Tea"


@isolate_apps("tests.shop")
async def test_names_outside_ascii_have_tools_and_uris(found: Registry) -> None:
    size = define("Größe", größe=models.CharField(max_length=5))
    order = define("Заказ", größe=models.ForeignKey(size, models.CASCADE))
    declared = {"fields": ["größe"], "list_filter": ["größe"]}
    register(size)(type("Sizes", (ModelToolset,), declared))
    register(order)(type("Orders", (ModelToolset,), declared))
    assert check() == []
    names = await serve(found).names()
    assert [name for name in names if name.endswith("_list")] == ["grosse_list", "xn--80aatcn_list"]
    assert sorted(one.template.text for one in found.templates) == [
        "shop.grosse://{?gr%C3%B6%C3%9Fe,search,cursor}",
        "shop.grosse://{pk}",
        "shop.xn--80aatcn://{?gr%C3%B6%C3%9Fe,search,cursor}",
        "shop.xn--80aatcn://{pk}",
    ]


@pytest.mark.django_db(transaction=True)
async def test_choices_that_are_rows_are_read_off_the_event_loop(found: Registry) -> None:
    await Category.objects.acreate(slug="tea", name="Tea")

    def choose() -> list[tuple[str, str]]:
        return [(one.slug, one.name) for one in Category.objects.all()]

    class KindForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
        kind = forms.ChoiceField(choices=choose)

    register(Tag)(type("KindTags", (Tags,), {"form": KindForm, "tools": ("create",)}))
    [entry] = (await serve(found).request("tools/list"))["tools"]
    assert "tea" in str(entry["inputSchema"]["properties"]["values"]["properties"]["kind"])
    assert found.problems == []
