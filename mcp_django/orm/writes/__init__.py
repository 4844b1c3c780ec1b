"""What writing takes beside reading: values into forms, forms into rows, and everything that makes it safe to do."""
