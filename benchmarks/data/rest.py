"""The airports as Django REST framework shows them."""

from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.serializers import ModelSerializer
from rest_framework.viewsets import GenericViewSet

from benchmarks.data.models import Airport


class AirportSerializer(ModelSerializer[Airport]):
    """Every field."""

    class Meta:
        model = Airport
        fields = "__all__"


class Pages(LimitOffsetPagination):
    """As many rows as a page of ours has at most."""

    default_limit = 100


class AirportViewSet(ListModelMixin, RetrieveModelMixin, GenericViewSet[Airport]):
    """Lists and single rows, without authentication, as for the others."""

    queryset = Airport.objects.all()
    serializer_class = AirportSerializer
    pagination_class = Pages
