"""Sources of primitives besides the decorators."""
