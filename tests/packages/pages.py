"""A model with a stream of blocks, one of which refers to rows."""

from typing import Any

from django import forms
from django.contrib.auth.models import Group
from django.db import models
from django.utils.safestring import mark_safe
from wagtail import blocks
from wagtail.fields import StreamField


class GroupBlock(blocks.ChooserBlock):  # type: ignore[misc]
    """A reference to a group of users, read from the database when it is rendered."""

    target_model = Group
    widget = forms.Select()

    def render_basic(self, value: Any, context: Any = None) -> str:
        return mark_safe(f"<b>{value.name}</b>")


class CardBlock(blocks.StructBlock):  # type: ignore[misc]
    number = blocks.IntegerBlock()
    names = blocks.ListBlock(blocks.CharBlock())


class Story(models.Model):
    title = models.CharField(max_length=40, blank=True)
    body = StreamField(
        [
            ("heading", blocks.CharBlock()),
            ("group", GroupBlock()),
            ("card", CardBlock()),
        ],
        blank=True,
    )
