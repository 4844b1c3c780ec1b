"""Full-text search of the memory, and its cursors."""
