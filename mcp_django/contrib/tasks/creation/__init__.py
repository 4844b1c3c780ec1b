"""Creation of tasks from calls: rows, and the grace in which a call may get a plain result."""
