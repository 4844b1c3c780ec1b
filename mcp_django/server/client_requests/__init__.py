"""Requests to the client: elicitation, sampling and roots, sent live or by replay."""
