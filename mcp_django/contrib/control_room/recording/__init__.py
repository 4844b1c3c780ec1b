"""The way of a call from the pipeline to the rows."""
