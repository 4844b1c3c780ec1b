"""`path("mcp/clients/", include("mcp_django.client_pages.urls"))`: connected services, and the way to connect one.

The extra `client` has to be installed.
"""

from django.urls import path

from .metadata import client_metadata
from .views import Callback, Connect, Services

app_name = "mcp_clients"

urlpatterns = [
    path("", Services.as_view(), name="services"),
    path("client-metadata.json", client_metadata, name="metadata"),
    path("<slug:alias>/connect/", Connect.as_view(), name="connect"),
    path("<slug:alias>/callback/", Callback.as_view(), name="callback"),
]
