"""Transports: decode requests into messages, encode answers into bytes.

Transports do not depend on method names.
"""
