"""App config of the exports."""

from django.apps import AppConfig


class ExportsConfig(AppConfig):
    name = "tests.exports"
    label = "exports"
    default_auto_field = "django.db.models.BigAutoField"
