"""What the composed project declares when it starts."""

from tests.composed import declared as declared
