"""Where the API of the library is, and the endpoint beside it."""

from django.contrib.auth.decorators import login_required
from django.urls import include, path
from rest_framework.permissions import IsAdminUser
from rest_framework.routers import SimpleRouter

from tests.library import views

router = SimpleRouter()
router.register("books", views.BookViewSet)
router.register("authors", views.AuthorViewSet)

namespaced = ([path("which/", views.ByNamespace.as_view(), name="which")], "library")
urlpatterns = [
    path("", include("mcp_django.urls")),
    path("api/", include(router.urls)),
    path("api/authors/<int:author_pk>/books/", views.AuthorBooks.as_view(), name="author-books"),
    path("api/<str:version>/by-path/", views.ByPath.as_view()),
    path("api/by-accept/", views.ByAccept.as_view()),
    path("api/by-query/", views.ByQuery.as_view()),
    path("n1/", include(namespaced, namespace="n1")),
    path("n2/", include(namespaced, namespace="n2")),
    path("rendered/", views.Rendered.as_view()),
    path("text/", views.OnlyText.as_view()),
    path("upload/", views.Upload.as_view()),
    path("transfer/", views.Transfer.as_view()),
    path("free-transfer/", views.NonAtomicTransfer.as_view()),
    path("<path:tenant>/filed/<path:name>", views.Filed.as_view()),
    path("cached/", views.Cached.as_view()),
    path("handled/", views.Handled.as_view()),
    path("strict/", views.Strict.as_view(permission_classes=[IsAdminUser]), name="strict"),
    path("decorated/", login_required(views.Versioned.as_view())),
    path("rate/<slug:word>/", views.rate, name="rate"),
]
