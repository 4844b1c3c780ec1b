"""Django forms that validate writes."""
