"""Codec of label trees, PostgreSQL's `ltree`: the field class of django-ltree."""

import re
from dataclasses import replace

from mcp_django.orm.codecs.codec import COMPARABLE_LOOKUPS, Codec, to_plain_text
from mcp_django.orm.codecs.parsing import parse_text_value
from mcp_django.orm.codecs.registry import register_codec

_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_QUERY = re.compile(r"[A-Za-z0-9_.*{},|@%!-]+")


def parse_label_path(value: object) -> str:
    """Return a path of labels, such as `top.science`.

    Raises:
        ValueError: the value is another text.
    """
    if not _PATH.fullmatch(parse_text_value(value)):
        raise ValueError("give labels with dots between them, such as 'top.science'")
    return str(value)


def parse_label_query(value: object) -> str:
    """Return a pattern of paths (`lquery`), such as `top.*`.

    Raises:
        ValueError: the value has other characters.
    """
    if not _QUERY.fullmatch(parse_text_value(value)):
        raise ValueError("give a pattern of labels, such as 'top.*'")
    return str(value)


@register_codec("django_ltree.fields.PathField")
def build_label_path_codec(field: object) -> Codec:
    """Build the codec of a path in a label tree."""
    codec = Codec(
        kind="label-path",
        schema={"type": "string", "description": "labels with dots between them, such as top.science"},
        encode=to_plain_text,
        decode=parse_label_path,
        lookups=COMPARABLE_LOOKUPS,
        to_form=parse_label_path,
    )
    return replace(
        codec,
        lookups={**codec.lookups, "ancestors": "value", "descendants": "value", "match": parse_label_query},
    )
