"""The airports in a view of Django REST framework."""

from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.serializers import ModelSerializer
from rest_framework.viewsets import GenericViewSet

from benchmarks.data.models import Airport


class AirportSerializer(ModelSerializer[Airport]):
    """A serializer of all fields."""

    class Meta:
        model = Airport
        fields = "__all__"


class Pages(LimitOffsetPagination):
    """Pages with the largest number of rows that a page of this package has."""

    default_limit = 100


class AirportViewSet(ListModelMixin, RetrieveModelMixin, GenericViewSet[Airport]):
    """A view of pages and single rows, without authentication, as in other subjects."""

    queryset = Airport.objects.all()
    serializer_class = AirportSerializer
    pagination_class = Pages
