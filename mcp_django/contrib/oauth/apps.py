"""The Django app of the authorization server."""

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _


class OAuthConfig(AppConfig):
    """App that registers system checks, and connects signals that invalidate caches."""

    name = "mcp_django.contrib.oauth"
    label = "mcp_oauth"
    verbose_name = _("MCP authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Check that django-oauth-toolkit is installed, before its import fails.

        Raises:
            ImproperlyConfigured: the app "oauth2_provider" is missing.
        """
        if not apps.is_installed("oauth2_provider"):
            raise ImproperlyConfigured(
                'mcp_django.contrib.oauth requires django-oauth-toolkit: add "oauth2_provider" to INSTALLED_APPS.'
            )
        super().import_models()

    def ready(self) -> None:
        from mcp_django.contrib.oauth import checks, log_redaction, options, signals  # noqa: F401

        log_redaction.install()
        signals.connect()
