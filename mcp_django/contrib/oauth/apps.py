"""The Django app of the authorization server."""

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _


class OAuthConfig(AppConfig):
    """Registers the system checks, and has what is revoked forgotten by those who know it."""

    name = "mcp_django.contrib.oauth"
    label = "mcp_oauth"
    verbose_name = _("MCP authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Raises ImproperlyConfigured without the app that ours stands on, before that fails by words of its own."""
        if not apps.is_installed("oauth2_provider"):
            raise ImproperlyConfigured(
                'mcp_django.contrib.oauth stands on django-oauth-toolkit: add "oauth2_provider" to INSTALLED_APPS.'
            )
        super().import_models()

    def ready(self) -> None:
        from mcp_django.contrib.oauth import checks, log_redaction, options, signals  # noqa: F401

        log_redaction.install()
        signals.connect()
