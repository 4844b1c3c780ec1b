"""Queries of a toolset: visibility, filters, pagination, aggregation and limits."""
