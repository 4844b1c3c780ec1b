"""Rows of all models of the package, from the registry of apps: a new model is found without a change here."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.apps import apps
from django.contrib.auth.models import User
from django.db import models
from django.utils import timezone

PACKAGE_LABELS = (
    "mcp_django",
    "mcp_control_room",
    "mcp_memory",
    "mcp_oauth",
    "mcp_playground",
    "mcp_skills",
    "mcp_tasks",
)
"""Labels of the apps of the package."""


def build_value(field: Any, text: str) -> Any:
    """Return a value with the text for a column."""
    if field.choices:
        return field.flatchoices[0][0]
    match field:
        case models.JSONField():
            default = field.get_default()
            return {text: text} if isinstance(default, dict) else [text]
        case models.CharField() | models.TextField():
            return f"{text}{field.name}"[: field.max_length]
        case models.DateTimeField():
            return timezone.now()
        case models.BooleanField():
            return True
        case models.DurationField():
            return timedelta(days=1)
        case models.UUIDField():
            return uuid4()
        case models.GenericIPAddressField():
            return "192.0.2.1"
        case models.BinaryField():
            return b""
        case models.FloatField() | models.IntegerField():
            return 1
    raise AssertionError(f"{field} has no value")


def create_package_rows(text: str) -> list[models.Model]:
    """Create a row of each model of the package whose texts begin with a text, and return them."""
    user = User.objects.create(username=f"user{text}")
    made: dict[type[models.Model], models.Model | None] = {User: user}

    def create(model: Any) -> Any:
        if model not in made:
            made[model] = None  # for models that refer to each other
            values = {}
            for field in model._meta.concrete_fields:
                if field.remote_field is not None:
                    values[field.name] = create(field.related_model)
                elif not isinstance(field, models.AutoField):
                    values[field.name] = build_value(field, text)
            [made[model]] = model._base_manager.bulk_create([model(**values)])
        return made[model]

    for label in PACKAGE_LABELS:
        for model in apps.get_app_config(label).get_models():
            if model._meta.managed and not model._meta.proxy:
                create(model)
    return [row for row in made.values() if row is not None]
