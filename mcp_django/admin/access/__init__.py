"""Page that compares the access of callers to tools."""
