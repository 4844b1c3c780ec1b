"""An API with everything that a view of DRF's may have. Nothing in it knows of MCP."""

from typing import Any

import django_filters
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.http import FileResponse, Http404, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_headers
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import (
    exceptions,
    filters,
    generics,
    pagination,
    parsers,
    permissions,
    serializers,
    status,
    throttling,
    versioning,
    viewsets,
)
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.library.models import Author, Book, Review


class HeaderAuthentication(BaseAuthentication):
    """Believes a header."""

    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("X-User")
        if name is None:
            return None
        try:
            return User.objects.get(username=name), "header"
        except User.DoesNotExist:
            raise exceptions.AuthenticationFailed("Who?") from None

    def authenticate_header(self, request: Any) -> str:
        return "X-User"


class OwnerOrReadOnly(permissions.BasePermission):
    message = "This is not yours."

    def has_object_permission(self, request: Any, view: Any, obj: Any) -> bool:
        return request.method in permissions.SAFE_METHODS or obj.owner_id == request.user.pk


class AuthorSerializer(serializers.ModelSerializer):
    class Meta:
        model = Author
        fields = ["id", "name", "country", "initials"]


class ReviewSerializer(serializers.ModelSerializer):
    class Meta:
        model = Review
        fields = ["stars", "text"]
        extra_kwargs = {"stars": {"min_value": 1, "max_value": 5}}


class BookSerializer(serializers.ModelSerializer):
    author = serializers.PrimaryKeyRelatedField(queryset=Author.objects.all())
    author_name = serializers.CharField(source="author.name", read_only=True)
    reviews = ReviewSerializer(many=True, required=False)
    label = serializers.SerializerMethodField()
    url = serializers.HyperlinkedIdentityField(view_name="book-detail")
    password = serializers.CharField(write_only=True, required=False)

    class Meta:
        model = Book
        fields = [
            *("id", "url", "isbn", "title", "author", "author_name", "genre", "price", "pages", "published", "extra"),
            *("reviews", "label", "password"),
        ]
        extra_kwargs = {"title": {"min_length": 2, "help_text": "As on the cover"}}

    def get_label(self, book: Book) -> str:
        return f"{book.title} ({book.isbn})"

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("title") == "Forbidden":
            raise serializers.ValidationError("This book is banned.")
        return attrs

    def create(self, validated_data: dict[str, Any]) -> Book:
        reviews = validated_data.pop("reviews", [])
        validated_data.pop("password", None)
        book: Book = super().create(validated_data)
        for review in reviews:
            Review.objects.create(book=book, **review)
        return book

    def update(self, instance: Book, validated_data: dict[str, Any]) -> Book:
        validated_data.pop("reviews", None)
        validated_data.pop("password", None)
        book: Book = super().update(instance, validated_data)
        return book


class CoverSerializer(serializers.ModelSerializer):
    class Meta:
        model = Book
        fields = ["cover", "title"]
        extra_kwargs = {"cover": {"required": True}, "title": {"required": False}}


class BookFilter(django_filters.FilterSet):
    min_price = django_filters.NumberFilter(field_name="price", lookup_expr="gte", label="At least this dear")
    published = django_filters.DateFromToRangeFilter()
    isbn_in = django_filters.BaseInFilter(field_name="isbn")
    dated = django_filters.BooleanFilter(field_name="published", lookup_expr="isnull", exclude=True)
    genre = django_filters.MultipleChoiceFilter(choices=Book.Genre.choices)

    class Meta:
        model = Book
        fields = ["author"]


class Pages(pagination.PageNumberPagination):
    page_size = 3
    page_size_query_param = "page_size"
    max_page_size = 5


class BurstThrottle(throttling.UserRateThrottle):
    scope = "library"
    rate = "3/hour"


class BookViewSet(viewsets.ModelViewSet):
    """Books of the library."""

    queryset = Book.objects.select_related("author").prefetch_related("reviews")
    serializer_class = BookSerializer
    authentication_classes = [HeaderAuthentication]
    permission_classes = [permissions.IsAuthenticated, OwnerOrReadOnly]
    pagination_class = Pages
    filter_backends = [DjangoFilterBackend, filters.SearchFilter, filters.OrderingFilter]
    filterset_class = BookFilter
    search_fields = ["title", "author__name"]
    ordering_fields = ["title", "price"]

    def perform_create(self, serializer: Any) -> None:
        serializer.save(owner=self.request.user)

    @action(detail=True, methods=["post"], permission_classes=[permissions.IsAdminUser])
    def ban(self, request: Any, pk: Any = None) -> Response:
        """Take a book from the shelf.

        The reason is in the body.
        """
        book = self.get_object()
        Book.objects.filter(pk=book.pk).update(extra={"banned": request.data.get("reason", "")})
        return Response({"banned": book.isbn})

    @action(detail=False)
    def cheapest(self, request: Any) -> Response:
        """The cheapest book."""
        book = self.filter_queryset(self.get_queryset()).order_by("price").first()
        return Response(self.get_serializer(book).data)

    @action(detail=True, methods=["get", "delete"])
    def notes(self, request: Any, pk: Any = None) -> Response:
        """Return the notes on a book."""
        book = self.get_object()
        if request.method == "DELETE":
            Book.objects.filter(pk=book.pk).update(extra={})
            return Response(status=status.HTTP_204_NO_CONTENT)
        return Response([book.extra])

    @notes.mapping.put
    def set_notes(self, request: Any, pk: Any = None) -> Response:
        book = self.get_object()
        Book.objects.filter(pk=book.pk).update(extra=request.data)
        return Response({"extra": request.data}, status=status.HTTP_202_ACCEPTED)

    @action(detail=True, methods=["post"], serializer_class=CoverSerializer, parser_classes=[parsers.MultiPartParser])
    def cover(self, request: Any, pk: Any = None) -> Response:
        """Upload a cover."""
        serializer = self.get_serializer(self.get_object(), data=request.data)
        serializer.is_valid(raise_exception=True)
        upload = serializer.validated_data["cover"]
        told = {"name": upload.name, "type": upload.content_type, "size": upload.size, "kind": type(upload).__name__}
        return Response({**told, "bytes": upload.read().hex(), "title": serializer.validated_data.get("title")})

    @action(detail=False, url_path="as-csv")
    def as_csv(self, request: Any) -> HttpResponse:
        return HttpResponse("isbn\n1\n", content_type="text/csv")

    @action(detail=False)
    def archive(self, request: Any) -> FileResponse:
        import io

        return FileResponse(io.BytesIO(b"\x00\x01zip"), content_type="application/zip")

    @action(detail=False)
    def broken(self, request: Any) -> Response:
        raise ZeroDivisionError("secret text")

    @action(detail=False)
    def suspicious(self, request: Any) -> Response:
        raise SuspiciousOperation("secret text")

    @action(detail=False, throttle_classes=[BurstThrottle])
    def limited(self, request: Any) -> Response:
        return Response({"ok": True})

    @action(detail=False)
    def who(self, request: Any) -> Response:
        return Response(
            {
                "user": request.user.username,
                "address": request.META["REMOTE_ADDR"],
                "host": request.get_host(),
                "path": request.path,
                "view": request.resolver_match.view_name,
                "method": request.method,
                "action": self.action,
            }
        )


class AuthorViewSet(viewsets.ReadOnlyModelViewSet):
    queryset = Author.objects.order_by("pk")
    serializer_class = AuthorSerializer
    pagination_class = None
    authentication_classes = [SessionAuthentication]
    permission_classes = [permissions.DjangoModelPermissions]
    http_method_names = ["get", "head", "options"]


class AuthorBooks(generics.ListCreateAPIView):
    """The books of one author."""

    serializer_class = BookSerializer
    authentication_classes = [HeaderAuthentication]
    permission_classes = [permissions.IsAuthenticatedOrReadOnly]
    pagination_class = pagination.LimitOffsetPagination
    filter_backends: list[Any] = []

    def get_queryset(self) -> Any:
        return Book.objects.filter(author=self.kwargs["author_pk"]).prefetch_related("reviews")


class Versioned(APIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def get(self, request: Any, **kwargs: Any) -> Response:
        return Response({"version": request.version, "user": request.user.is_anonymous})


class ByPath(Versioned):
    class versioning_class(versioning.URLPathVersioning):  # noqa: N801
        allowed_versions = ["v1", "v2"]


class ByAccept(Versioned):
    class versioning_class(versioning.AcceptHeaderVersioning):  # noqa: N801
        allowed_versions = ["1.0", "2.0"]
        default_version = "1.0"


class ByQuery(Versioned):
    class versioning_class(versioning.QueryParameterVersioning):  # noqa: N801
        allowed_versions = ["1", "2"]
        default_version = "1"


class ByNamespace(Versioned):
    class versioning_class(versioning.NamespaceVersioning):  # noqa: N801
        allowed_versions = ["n1", "n2"]


class Vendor(JSONRenderer):
    media_type = "application/vnd.library+json"
    format = "vendor"


class Yelling(BaseRenderer):
    media_type = "text/plain"
    format = "txt"

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        return str(data).upper().encode()


class Rendered(APIView):
    permission_classes: list[Any] = []
    renderer_classes = [Yelling, Vendor]

    def get(self, request: Any) -> Response:
        return Response({"accepted": request.accepted_renderer.format})


class OnlyText(Rendered):
    renderer_classes = [Yelling]


class Upload(APIView):
    permission_classes: list[Any] = []
    parser_classes = [parsers.FileUploadParser]

    def put(self, request: Any) -> Response:
        file = request.data["file"]
        return Response({"name": file.name, "type": file.content_type, "bytes": file.read().hex()})


class Transfer(APIView):
    """Two writes, the second of which fails."""

    permission_classes: list[Any] = []

    def post(self, request: Any) -> Response:
        Author.objects.create(name="First")
        if request.data.get("fail") == "raise":
            raise exceptions.ValidationError({"fail": "asked for"})
        if request.data.get("fail") == "return":
            return Response({"fail": "asked for"}, status=400)
        if request.data.get("fail") == "404":
            raise Http404
        if request.data.get("fail") == "suspicious":
            raise SuspiciousOperation("asked for")
        return Response({"done": True}, status=201)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class NonAtomicTransfer(Transfer):
    pass


class Filed(APIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def get(self, request: Any, tenant: str, name: str) -> Response:
        return Response({"tenant": tenant, "name": name})


class Cached(APIView):
    authentication_classes = [HeaderAuthentication]
    permission_classes: list[Any] = []
    served: list[str] = []

    @method_decorator(cache_page(60))
    @method_decorator(vary_on_headers("Authorization"))
    def get(self, request: Any) -> Response:
        self.served.append(request.user.username)
        return Response({"user": request.user.username})


class Conflict(exceptions.APIException):
    status_code = 409
    default_detail = "Somebody was faster."


class Handled(APIView):
    permission_classes: list[Any] = []

    def get_exception_handler(self) -> Any:
        return lambda exc, context: Response({"error": {"code": "teapot", "say": str(exc)}}, status=418)

    def get(self, request: Any) -> Response:
        raise Conflict


class Strict(APIView):
    """A view that routes with stricter permissions than its class has."""

    authentication_classes = [HeaderAuthentication]
    permission_classes: list[Any] = []

    def get(self, request: Any) -> Response:
        return Response({"strict": True})


class Stars(serializers.Serializer):
    stars = serializers.IntegerField(min_value=1, max_value=5, help_text="More is better")
    why = serializers.ListField(child=serializers.CharField(max_length=20), required=False, max_length=3)


@api_view(["GET", "POST"])
@permission_classes([permissions.AllowAny])
def rate(request: Any, word: str) -> Response:
    """Rate a word."""
    if request.method == "GET":
        return Response({"word": word, "query": request.query_params.getlist("tag")})
    serializer = Stars(data=request.data)
    serializer.is_valid(raise_exception=True)
    return Response({"word": word, **serializer.validated_data}, status=201)
