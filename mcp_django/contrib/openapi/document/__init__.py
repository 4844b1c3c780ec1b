"""OpenAPI documents: reading them, and the operations, schemas and routes in them."""
