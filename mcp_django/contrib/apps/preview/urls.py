"""URLs of the preview: `include("mcp_django.contrib.apps.preview.urls")`."""

from django.urls import path

from mcp_django.contrib.apps.preview.views import FrameView, PreviewPageView, RequestView

app_name = "mcp_apps_preview"

urlpatterns = [
    path("", PreviewPageView.as_view(), name="page"),
    path("request/", RequestView.as_view(), name="request"),
    path("frame/", FrameView.as_view(), name="frame"),
]
