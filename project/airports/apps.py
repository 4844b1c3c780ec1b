"""Configuration of the demo app."""

from django.apps import AppConfig


class AirportsConfig(AppConfig):
    """Airports of the world. There is nothing to register: `mcp_tools.py` is found by its name."""

    name = "project.airports"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Airports of the world"
