"""Columns whose field classes convert values: shown, filtered and written values."""

from typing import Any

import pytest

from mcp_django import ModelToolset
from tests.columns.fields import LevelField, Shade
from tests.columns.models import Account, Draft, Paint, Payment
from tests.orm.test_generic import peer as generic_peer
from tests.orm.toolsets import data, peer
from tests.server.client import PipelineClient

pytestmark = pytest.mark.django_db

EVERYTHING = ("describe", "list", "get", "count", "aggregate", "create", "update", "delete")
SNOWFLAKE = 725653563933458432
"""A key that JavaScript rounds."""


class Paints(ModelToolset):
    model = Paint
    fields = ["shade", "level", "note", "recipe", "zone"]
    list_filter = "__all__"
    tools = EVERYTHING


class Accounts(ModelToolset):
    model = Account
    fields = ["number", "balance", "payments"]
    list_filter = "__all__"
    tools = EVERYTHING


class Payments(ModelToolset):
    model = Payment
    fields = ["account", "amount"]
    list_filter = "__all__"
    tools = EVERYTHING


async def client() -> PipelineClient:
    return peer(Paints, Accounts, Payments)


async def described(server: PipelineClient, tool: str, field: str) -> dict[str, Any]:
    [found] = [each for each in (await data(server, tool))["fields"] if each["name"] == field]
    return dict(found)


async def test_row_of_converted_values_has_plain_json() -> None:
    row = await Paint.objects.acreate(
        shade=Shade.BLUE, level=LevelField.Member.HIGH, note="<b>dry</b>", recipe="code", zone="Europe/Zurich"
    )
    server = await client()
    shown = await data(server, "paint_get", pk=row.pk)
    del shown["_version"]
    values = {"shade": "b", "level": 20, "note": "<b>dry</b>", "recipe": "code", "zone": "Europe/Zurich"}
    assert shown == {"pk": row.pk, **values}
    assert (await data(server, "paint_list"))["items"] == [{"pk": row.pk, **values}]


async def test_shown_values_find_their_row(subtests: pytest.Subtests) -> None:
    row = await Paint.objects.acreate(shade=Shade.BLUE, level=LevelField.Member.HIGH, zone="Europe/Zurich")
    await Paint.objects.acreate()
    server = await client()
    for filters in ({"shade": "b"}, {"shade__in": ["b"]}, {"level": 20}, {"level__gt": 3}, {"zone": "Europe/Zurich"}):
        with subtests.test(filters=filters):
            found = await data(server, "paint_list", filters=filters)
            assert [item["pk"] for item in found["items"]] == [row.pk]


async def test_shown_values_are_written(subtests: pytest.Subtests) -> None:
    row = await Paint.objects.acreate()
    server = await client()
    await data(server, "paint_update", pk=row.pk, values={"shade": "b", "level": 20, "zone": "Europe/Zurich"})
    row = await Paint.objects.aget()
    assert (row.shade, row.level, str(row.zone)) == (Shade.BLUE, LevelField.Member.HIGH, "Europe/Zurich")

    made = await data(server, "paint_create", values={"shade": "r", "level": 1})
    assert (made["item"]["shade"], made["item"]["level"]) == ("r", 1)


async def test_a_value_that_the_class_rejects_is_a_tool_error() -> None:
    server = await client()
    result = await server.call("paint_list", filters={"shade": "x"})
    assert result["isError"]
    assert "filters: shade: x is no Shade" in result["content"][0]["text"]
    result = await server.call("paint_list", filters={"zone": "../etc"})
    assert "filters: zone: not a value of this field" in result["content"][0]["text"]


async def test_stored_forms_that_differ_from_the_value_are_compared_with_null_only() -> None:
    await Paint.objects.acreate(recipe="code")
    result = await (await client()).call("paint_list", filters={"recipe": "code"})
    assert "recipe does not support the lookup 'exact'; use isnull" in result["content"][0]["text"]


async def test_pages_and_groups_by_a_converted_column() -> None:
    for shade in (Shade.BLUE, Shade.RED, Shade.RED):
        await Paint.objects.acreate(shade=shade, level=LevelField.Member.HIGH)
    server = await client()
    first = await data(server, "paint_list", order_by=["-shade"], limit=2, fields=["shade"])
    second = await data(
        server, "paint_list", order_by=["-shade"], limit=2, fields=["shade"], cursor=first["next_cursor"]
    )
    assert [item["shade"] for item in first["items"] + second["items"]] == ["r", "r", "b"]

    groups = await data(server, "paint_aggregate", group_by=["shade"], metrics=[{"function": "max", "field": "level"}])
    assert groups["groups"] == [{"shade": "b", "max_level": 20}, {"shade": "r", "max_level": 20}]


async def test_choices_that_are_objects_are_described_as_shown() -> None:
    server = await client()
    zone = await described(server, "paint_describe", "zone")
    assert zone["choices"] == [{"value": "Europe/Zurich", "label": "Europe/Zurich"}, {"value": "UTC", "label": "UTC"}]
    shade = await described(server, "paint_describe", "shade")
    assert [choice["value"] for choice in shade["choices"]] == ["r", "b"]


async def test_a_reference_offers_only_lookups_that_work(subtests: pytest.Subtests) -> None:
    server = await client()
    lookups = (await described(server, "payment_describe", "account"))["lookups"]
    assert lookups == ["exact", "in", "isnull", "gt", "gte", "lt", "lte"]
    for lookup in lookups:
        with subtests.test(lookup=lookup):
            value: Any = {"in": [1], "isnull": False}.get(lookup, 1)
            await data(server, "payment_list", filters={f"account__{lookup}": value})


async def test_a_row_with_a_key_beyond_53_bits_is_read_and_written_by_its_shown_key() -> None:
    account = await Account.objects.acreate(number=SNOWFLAKE, balance=-SNOWFLAKE)
    payment = await Payment.objects.acreate(account=account)
    small = await Account.objects.acreate(number=7)
    server = await client()

    rows = (await data(server, "account_list", order_by=["-number"]))["items"]
    text = str(SNOWFLAKE)
    uri = f"columns.payment://{payment.pk}"
    reference = {"pk": payment.pk, "label": str(payment.pk), "uri": uri}
    assert rows == [
        {"pk": text, "number": text, "balance": f"-{text}", "payments": [reference]},
        {"pk": 7, "number": 7, "balance": small.balance, "payments": []},
    ]

    assert (await data(server, "account_get", pk=text))["balance"] == f"-{text}"
    reference = (await data(server, "payment_get", pk=payment.pk))["account"]
    assert reference == {"pk": text, "label": text, "uri": f"columns.account://{text}"}
    read = await server.request("resources/read", {"uri": reference["uri"]})
    assert f'"pk":"{text}"' in read["contents"][0]["text"]

    for filters in ({"number": text}, {"number__gte": text}, {"pk__in": [text]}, {"payments": payment.pk}):
        assert (await data(server, "account_count", filters=filters))["count"] == 1
    assert (await data(server, "payment_count", filters={"account": text}))["count"] == 1

    saved = await data(server, "payment_update", pk=payment.pk, values={"account": 7})
    saved = await data(server, "payment_update", pk=payment.pk, values={"account": text})
    assert saved["item"]["account"]["pk"] == text
    await data(server, "account_update", pk=text, values={"balance": text})
    made = await data(server, "account_create", values={"number": str(SNOWFLAKE + 1)})
    assert made["pk"] == str(SNOWFLAKE + 1)
    total = await data(server, "account_aggregate", metrics=[{"function": "max", "field": "number"}])
    assert total["groups"] == [{"max_number": made["pk"]}]


async def test_tools_for_all_models_take_the_shown_key() -> None:
    await Account.objects.acreate(number=SNOWFLAKE)
    server, given = generic_peer(Accounts, Payments), {"model": "columns.Account", "pk": str(SNOWFLAKE)}
    assert (await data(server, "models_get", **given))["pk"] == given["pk"]
    saved = await data(server, "models_update", **given, values={"balance": "5"})
    assert saved["item"]["balance"] == 5
    assert (await data(server, "models_delete", **given))["pk"] == given["pk"]


async def test_pages_of_keys_beyond_53_bits() -> None:
    keys = [SNOWFLAKE + number for number in range(3)]
    await Account.objects.abulk_create(Account(number=key) for key in keys)
    server = await client()
    first = await data(server, "account_list", limit=2)
    second = await data(server, "account_list", limit=2, cursor=first["next_cursor"])
    assert [item["pk"] for item in first["items"] + second["items"]] == list(map(str, keys))


async def test_an_integer_as_text_must_be_decimal_and_of_64_bits(subtests: pytest.Subtests) -> None:
    server = await client()
    for value in ("7 ", "0x7", "", "9" * 19, "1.0"):
        with subtests.test(value=value):
            result = await server.call("account_list", filters={"number": value})
            assert result["isError"]


async def test_rows_of_models_whose_methods_take_no_arguments_are_saved_and_deleted() -> None:
    class Drafts(ModelToolset):
        model = Draft
        fields = ["slug", "title"]
        tools = EVERYTHING

    server = peer(Drafts)
    made = await data(server, "draft_create", values={"slug": "a"})
    assert made["pk"] == "a"
    await data(server, "draft_update", pk="a", values={"title": "A"})
    assert (await Draft.objects.aget()).title == "A"
    await data(server, "draft_delete", pk="a")
    assert not await Draft.objects.aexists()
