"""Method handlers: one module per area of the specification.

`dispatcher.METHODS` lists the methods.
"""
