"""The rows of a tenant."""
