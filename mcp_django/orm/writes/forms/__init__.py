"""The Django forms that validate writes."""
