"""A shop, whose models have every kind of field and of relation. Tests expose them as they need."""
