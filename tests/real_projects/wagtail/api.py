"""Wagtail's REST API, with all of its endpoints."""

from wagtail.api.v2.router import WagtailAPIRouter
from wagtail.api.v2.views import PagesAPIViewSet
from wagtail.contrib.redirects.api import RedirectsAPIViewSet
from wagtail.documents.api.v2.views import DocumentsAPIViewSet
from wagtail.images.api.v2.views import ImagesAPIViewSet

ENDPOINTS = {
    "pages": PagesAPIViewSet,
    "images": ImagesAPIViewSet,
    "documents": DocumentsAPIViewSet,
    "redirects": RedirectsAPIViewSet,
}
api_router = WagtailAPIRouter("wagtailapi")
for name, view in ENDPOINTS.items():
    api_router.register_endpoint(name, view)
