"""The tenants, and their members."""
