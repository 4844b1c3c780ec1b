"""A project with a PostgreSQL schema for each tenant, run in a process of its own: the recipe for django-tenants."""
