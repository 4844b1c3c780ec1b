"""Template tags of apps."""
