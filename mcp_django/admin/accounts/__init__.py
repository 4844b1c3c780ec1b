"""Admin of service accounts."""
