from django.urls import include, path
from rest_framework.routers import SimpleRouter

from tests.clients.odd_rows.site.mcp_tools import OddityViewSet, serve_row

router = SimpleRouter()
router.register("oddities", OddityViewSet)
urlpatterns = [path("api/rows/<int:pk>", serve_row), path("views/", include(router.urls))]
