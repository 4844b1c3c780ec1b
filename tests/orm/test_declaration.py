"""Declarations of toolsets, and those that are refused at registration."""

from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.db import models
from django.test.utils import isolate_apps

import mcp_django
from mcp_django import ModelToolset, register
from mcp_django.orm.declaration.names import is_secret_name
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.toolset import Toolset
from tests.orm.toolsets import Categories, Products, Tags, shop
from tests.shop.models import Category, Line, Product, Tag


async def later(self: Any, ctx: Any, obj: Any = None) -> bool:
    return False


def toolset(model: Any, **attributes: Any) -> type[ModelToolset]:
    return type("Declared", (ModelToolset,), {"model": model, **attributes})


def test_a_wrong_declaration_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    cases = (
        (Product, {}, "fields is empty"),
        (Product, {"fields": "name"}, "fields is a list; write fields = ['name']"),
        (Product, {"fields": "__all__"}, '"__all__" requires exclude'),
        (Product, {"fields": "__all__", "exclude": []}, "'secret_token' looks like a secret"),
        (Product, {"fields": "__all__", "exclude": ["nothing"]}, "exclude names 'nothing'"),
        (Product, {"fields": ["nmae"]}, "'nmae' is neither a field of shop.Product nor a method"),
        (Product, {"fields": ["pk", "name"]}, "'pk' is shown with every row"),
        (Product, {"fields": ["category_id"]}, "'category_id' is neither"),
        (Product, {"fields": ["delete"]}, "'delete' is a method that changes data"),
        (Product, {"fields": ["secret_token"]}, "'secret_token' looks like a secret"),
        (Tag, {"fields": ["name"], "has_view_permission": later}, "has_view_permission is called as a plain function"),
        (Tag, {"fields": ["name"], "has_publish_permission": later}, "write it with def"),
        (Tag, {"fields": ["name"], "save_model": later}, "write it with def"),
        (Session, {"fields": ["expire_date"]}, "primary key of sessions.Session, 'session_key'"),
        (
            Product,
            {"fields": ["secret_token"], "sensitive_fields": ["secret_token"], "label_field": "secret_token"},
            "shown with its own row only",
        ),
        (Product, {"fields": ["supplier__api_key"]}, "'supplier__api_key' looks like a secret"),
        (Product, {"fields": ["supplier__nothing"]}, "shop.Supplier has no field 'nothing'"),
        (Product, {"fields": ["name__first"]}, "shop.Product has no relation 'name'"),
        (User, {"fields": ["username", "password"]}, "'password' looks like a secret"),
        (Product, {"fields": ["name"], "sensitive_fields": ["cost"]}, "sensitive_fields names 'cost'"),
        (Product, {"fields": ["name"], "readonly_fields": ["cost"]}, "readonly_fields names 'cost'"),
        (Product, {"fields": ["name"], "list_filter": ["cost"]}, "list_filter names 'cost', but fields shows neither"),
        (Product, {"fields": ["name"], "list_filter": ["category__name"]}, "but fields shows neither"),
        (Product, {"fields": ["supplier"], "list_filter": ["supplier__api_key"]}, "looks like a secret"),
        (Product, {"fields": ["name"], "search_fields": ["description"]}, "search_fields names 'description'"),
        (Product, {"fields": ["name"], "ordering": ["-cost"]}, "ordering names '-cost'"),
        (Product, {"fields": ["name"], "label_field": "cost"}, "label_field is 'cost'"),
        (Product, {"fields": ["name"], "tools": ["list", "destroy"]}, "unknown tool 'destroy'"),
        (Product, {"fields": ["name"], "page_size": 0}, "page_size = 0 is invalid"),
        (Product, {"fields": ["name"], "page_size": 500}, "page_size is larger than max_limit"),
        (Product, {"fields": ["name"], "query_timeout": -1}, "query_timeout = -1"),
        (
            Product,
            {"fields": ["secret_token"], "sensitive_fields": ["secret_token"], "list_filter": ["secret_token"]},
            "which is sensitive",
        ),
        (None, {"fields": ["name"]}, "no model; write @register"),
    )
    for model, attributes, message in cases:
        with subtests.test(model=model, attributes=attributes, message=message):
            with pytest.raises(DeclarationError) as refused:
                shop(toolset(model, **attributes))
            assert message in str(refused.value)


def test_fields_are_all_but_the_excluded_and_sensitive_ones() -> None:
    kind = toolset(Product, fields="__all__", exclude=["secret_token", "cost", "supplier"])
    (instance,) = shop(kind).registry.toolsets
    names = instance.field_names()
    assert "price" in names
    assert {"secret_token", "cost", "supplier", "tags"}.isdisjoint(names)

    kind = toolset(Product, fields=["secret_token"], sensitive_fields=["secret_token"], list_filter="__all__")
    (instance,) = shop(kind).registry.toolsets
    assert "secret_token" in instance.exposure.fields
    assert set(instance.exposure.filters) == {"pk"}
    assert set(instance.exposure.ordering) == {"pk"}


def test_names_of_secrets_are_recognized(subtests: pytest.Subtests) -> None:
    for name in (
        *("password", "user__password", "api_key", "apiKey", "secretToken", "reset_code", "password_hash", "otp"),
        *("salt", "private_key", "session_key", "access_token", "credentials", "totp_secret"),
    ):
        with subtests.test(name=name):
            assert is_secret_name(name)

    for name in ("key", "keyboard", "saltiness", "tokenized", "secretary", "postal_code", "hashtag"):
        with subtests.test(name=name):
            assert not is_secret_name(name)


def test_two_toolsets_of_one_model_on_one_server_are_refused_by_both_names() -> None:
    class First(Tags):
        pass

    class Second(Tags):
        prefix = "other"

    with pytest.raises(DeclarationError, match=r"shop\.Tag has two toolsets.*First.*Second"):
        shop(First, Second)


def test_tools_of_the_same_names_are_refused_and_a_prefix_helps() -> None:
    class Groups(ModelToolset):
        model = Permission
        fields = ["name"]
        prefix = "tag_"

    with pytest.raises(DeclarationError, match=r"Groups and of .*Tags have the same names, tag_"):
        shop(Tags, Groups)
    Groups.prefix = "right"
    assert {"right_list", "tag_list"} <= {tool.name for tool in shop(Tags, Groups).registry.tools}


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> dict[str, registry.Registry]:
    found: dict[str, registry.Registry] = {}
    monkeypatch.setattr(registry, "REGISTRIES", found)
    return found


def test_a_toolset_is_registered_for_its_model(registries: dict[str, registry.Registry]) -> None:
    @register(Tag)
    class Words(ModelToolset):
        fields = ["name"]

    @register(Tag, server="internal")
    class Inside(ModelToolset):
        fields: ClassVar[list[str]] = ["name", "internal_note"]

    assert [tool.name for tool in registries["default"].tools] == ["tag_count", "tag_describe", "tag_get", "tag_list"]
    assert len(registries["internal"].tools) == 4
    assert not registries["default"].problems
    assert Words.fields == ["name"]


def test_a_wrong_declaration_is_a_problem_that_checks_report(registries: dict[str, registry.Registry]) -> None:
    @register(Tag)
    class Wrong(ModelToolset):
        fields = ["password"]

    @register(Tag)
    class NoModel(Toolset):
        pass

    texts = [problem.text for problem in registries["default"].problems]
    assert "'password' looks like a secret" in texts[0]
    assert "only a ModelToolset can be registered for a model" in texts[1]
    assert not len(registries["default"].tools)


def test_one_class_may_serve_several_models(registries: dict[str, registry.Registry]) -> None:
    class Named(ModelToolset):
        fields = ["name"]
        tools = ["list"]

    register(Tag)(Named)
    register(Category)(Named)
    assert [tool.name for tool in registries["default"].tools] == ["category_list", "tag_list"]
    assert [toolset.model for toolset in registries["default"].toolsets] == [Tag, Category]


def test_a_path_into_a_model_without_toolset_is_left_out_and_reported() -> None:
    class Lines(ModelToolset):
        model = Line
        fields = ["quantity", "product__name", "order__reference"]
        tools = ["list"]

    *_, lines = shop(Products, Categories, Tags, Lines).registry.toolsets
    assert list(lines.exposure.fields) == ["quantity", "product__name"]
    (problem,) = lines.exposure.problems
    assert problem == "'order__reference' is left out: shop.Order has no toolset on this server"


def test_a_path_to_a_hidden_field_of_another_toolset_is_left_out_and_reported() -> None:
    class Mine(ModelToolset):
        model = Product
        fields = ["name", "tags", "tags__internal_note", "category__parent__name"]
        list_filter = ["tags__internal_note"]
        tools = ["list"]

    *_, mine = shop(Tags, Categories, Mine).registry.toolsets
    assert list(mine.exposure.fields) == ["name", "tags", "category__parent__name"]
    assert set(mine.exposure.filters) == {"pk"}
    assert "the toolset of shop.Tag does not show 'internal_note'" in mine.exposure.problems[0]


def test_a_related_toolset_registered_later_is_used() -> None:
    server = shop(Products)
    (products,) = server.registry.toolsets
    assert "category__name" not in products.exposure.fields
    mcp_django.server.primitives.toolset.add_toolset(server.registry, Categories())
    assert "category__name" in products.exposure.fields


def test_tools_that_read_are_served_with_the_permission_of_the_model() -> None:
    tools = {tool.name: tool for tool in shop(Products, Categories, Tags).registry.tools}
    assert tools["product_list"].permission == "shop.view_product"
    assert tools["product_list"].annotations is not None
    assert tools["product_list"].annotations.read_only

    assert tuple(ModelToolset.tools) == ("describe", "list", "get", "count")


@isolate_apps("tests.shop")
def test_the_tools_of_a_model_with_a_long_name_have_names_that_hosts_accept() -> None:
    def declare(name: str) -> set[str]:
        attributes = {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "shop"})}
        model = type(name, (models.Model,), attributes)
        declared = toolset(model, fields=["id"], tools=["list", "aggregate"])
        return {tool.name for tool in shop(declared).registry.tools}

    assert declare("A" * 52) == {f"{'a' * 52}_list", f"{'a' * 52}_aggregate"}
    names = declare("A" * 63)
    assert names == {f"{'a' * 45}_7d3e74_list", f"{'a' * 45}_7d3e74_aggregate"}
    assert declare("A" * 62 + "B").isdisjoint(names)


@isolate_apps("tests.shop")
def test_a_boolean_or_a_time_is_never_treated_as_a_secret() -> None:
    class Team(models.Model):
        require_2fa = models.BooleanField(default=False)
        token_expires = models.DateTimeField(null=True)
        password_age = models.DurationField(null=True)
        otp = models.IntegerField(null=True)

        class Meta:
            app_label = "shop"

    class Member(models.Model):
        team: "models.ForeignKey[Any, Any]" = models.ForeignKey(Team, models.CASCADE)
        secret: "models.ForeignKey[Any, Any]" = models.ForeignKey(Team, models.CASCADE, related_name="+")

        class Meta:
            app_label = "shop"

    harmless = ["require_2fa", "token_expires", "password_age"]
    shop(toolset(Team, fields=harmless, list_filter=harmless), toolset(Member, fields=["team", "team__require_2fa"]))
    shop(toolset(Member, fields=["team"], list_filter=["team__require_2fa"]))
    for model, name in ((Team, "otp"), (Member, "secret__require_2fa"), (Member, "team__otp")):
        with pytest.raises(DeclarationError, match="looks like a secret"):
            shop(toolset(model, fields=[name]))
    with pytest.raises(DeclarationError, match="looks like a secret"):
        shop(
            type("Methods", (ModelToolset,), {"model": Team, "fields": ["otp_set"], "otp_set": lambda self, obj: True})
        )
