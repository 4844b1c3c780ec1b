"""The measured project's one app."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Has a label of its own: "site" would say too little in a traceback."""

    name = "benchmarks.site"
    label = "benchmarks_site"
    default_auto_field = "django.db.models.BigAutoField"
