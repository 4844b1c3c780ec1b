"""An extension as another package would write it: rows, a result of its own, later answers, a filter, an admin page."""
