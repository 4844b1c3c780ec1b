"""An app with field classes of its own, which convert values as field classes of packages do."""
