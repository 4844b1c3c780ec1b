"""DRF at /rest/airports, and the Django view at /view/mcp.

The ASGI door at /mcp takes its requests before Django.
"""

from django.urls import include, path

from benchmarks.data.rest import AirportViewSet

urlpatterns = [
    path("view/", include("mcp_django.urls")),
    path("rest/airports/", AirportViewSet.as_view({"get": "list"})),
    path("rest/airports/<int:pk>/", AirportViewSet.as_view({"get": "retrieve"})),
]
