"""OpenAPI documents: loading them, and their operations, schemas and routes."""
