"""Sessions with a server: negotiation, requests, callbacks and subscriptions."""
