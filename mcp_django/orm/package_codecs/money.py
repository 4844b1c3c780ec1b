"""Codec of the prices of django-money: an amount, whose currency is a column of its own.

A row shows the amount, and the currency if the toolset shows its column. An amount without a currency leaves the
currency of the row as it is.
"""

from dataclasses import replace
from typing import Any

from django.db import models

from mcp_django.forms.choices import build_choice_schema, list_choices
from mcp_django.orm.codecs.codec import Codec
from mcp_django.orm.codecs.registry import get_codec, register_codec
from mcp_django.schema import any_of_types

MAX_LISTED_CURRENCIES = 30
"""Maximum number of currencies that a schema lists."""


@register_codec("djmoney.models.fields.MoneyField")
def build_money_codec(field: Any) -> Codec:
    """Build the codec of a MoneyField: an amount as in a DecimalField, written alone or with its currency."""
    amount = get_codec(field, models.DecimalField)

    def encode(value: Any) -> Any:
        return amount.serialize(getattr(value, "amount", value))

    def to_form(value: Any) -> Any:
        if not isinstance(value, dict):
            return amount.decode(value)
        if value.keys() != {"amount", "currency"}:
            raise ValueError("give an amount, or an object with amount and currency")
        return [amount.decode(value["amount"]), value["currency"]]

    currencies = list_choices(field.currency_choices, str)
    currency = build_choice_schema(currencies) if len(currencies) <= MAX_LISTED_CURRENCIES else {"type": "string"}
    with_currency = {
        "type": "object",
        "properties": {"amount": any_of_types("string", "number"), "currency": currency},
        "required": ["amount", "currency"],
        "additionalProperties": False,
    }
    return replace(
        amount,
        encode=encode,
        form_schema={
            "anyOf": [{"type": "string"}, {"type": "number"}, with_currency],
            "description": "an amount, as text to stay exact, which keeps its currency; or an object with the currency",
        },
        to_form=to_form,
    )
