"""Requests to DRF views: bodies, query parameters, pagination and versions."""
