"""Records of calls, for operators.

Counts by minute, hour and day, and rows of failed and slow calls.
"""
