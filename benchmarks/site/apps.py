"""The app of the measured project."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """The app, with a label of its own because "site" is not clear in a traceback."""

    name = "benchmarks.site"
    label = "benchmarks_site"
    default_auto_field = "django.db.models.BigAutoField"
