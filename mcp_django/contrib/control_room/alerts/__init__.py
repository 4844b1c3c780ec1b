"""Alerts: measurements against limits, their state in rows, and notification of people."""
