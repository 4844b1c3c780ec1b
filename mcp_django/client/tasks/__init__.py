"""Tasks of other servers: tool calls that end with a task, and the handle of a task."""
