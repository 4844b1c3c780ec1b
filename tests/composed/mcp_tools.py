"""Primitives that the composed project declares at its start."""

from tests.composed import declared as declared
