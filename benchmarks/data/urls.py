"""DRF at /rest/airports; the ASGI door at /mcp stands before these, the Django view is at /view/mcp."""

from django.urls import include, path

from benchmarks.data.rest import AirportViewSet

urlpatterns = [
    path("view/", include("mcp_django.urls")),
    path("rest/airports/", AirportViewSet.as_view({"get": "list"})),
    path("rest/airports/<int:pk>/", AirportViewSet.as_view({"get": "retrieve"})),
]
