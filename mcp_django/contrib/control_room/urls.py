"""URLs of the control room outside of the admin.

Use `path("", include("mcp_django.contrib.control_room.urls"))`.
"""

from django.urls import path

from mcp_django.contrib.control_room.metrics_view import metrics

app_name = "mcp_control_room"

urlpatterns = [path("mcp/metrics", metrics, name="metrics")]
