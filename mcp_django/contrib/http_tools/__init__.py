"""HTTP operations as tools: the parts that `contrib.rest` and `contrib.openapi` share."""
