"""URLs of the pages to connect services.

Use `include("mcp_django.contrib.client_pages.urls")`. They require the extra `client`.
"""

from django.urls import path

from mcp_django.contrib.client_pages.metadata import client_metadata
from mcp_django.contrib.client_pages.views import CallbackView, ConnectView, ServicesView

app_name = "mcp_clients"

urlpatterns = [
    path("", ServicesView.as_view(), name="services"),
    path("client-metadata.json", client_metadata, name="metadata"),
    path("<slug:alias>/connect/", ConnectView.as_view(), name="connect"),
    path("<slug:alias>/callback/", CallbackView.as_view(), name="callback"),
]
