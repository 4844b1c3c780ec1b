"""Views of Django REST framework as tools: `from mcp_django.rest import expose`.

This room is the one door to rest_framework. Nothing else in the package imports it, so a project without Django REST
framework never meets it.
"""

try:
    import rest_framework as rest_framework
except ImportError as missing:
    raise ImportError(
        "mcp_django.rest needs Django REST framework; install it with pip install 'mcp-django-channels[drf]'"
    ) from missing

from .exposing import expose

__all__ = ["expose"]
