"""URLs of the pages to connect services.

Use `include("mcp_django.contrib.client_pages.urls")`. They require the extra `client`.
"""

from django.urls import path

from mcp_django.contrib.client_pages.metadata import client_metadata
from mcp_django.contrib.client_pages.views import Callback, Connect, Services

app_name = "mcp_clients"

urlpatterns = [
    path("", Services.as_view(), name="services"),
    path("client-metadata.json", client_metadata, name="metadata"),
    path("<slug:alias>/connect/", Connect.as_view(), name="connect"),
    path("<slug:alias>/callback/", Callback.as_view(), name="callback"),
]
