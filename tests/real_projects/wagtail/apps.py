"""The app of the site; its label is not Wagtail's own."""

from django.apps import AppConfig


class StoriesConfig(AppConfig):
    """Page types of the site."""

    name = "tests.real_projects.wagtail"
    label = "stories"
    default_auto_field = "django.db.models.BigAutoField"
