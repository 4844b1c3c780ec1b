"""Subscriptions to changes, in both eras."""
