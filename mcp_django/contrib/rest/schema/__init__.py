"""JSON Schemas of DRF serializers and views."""
