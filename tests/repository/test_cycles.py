"""A call leaves nothing behind that only the cycle collector can free: collecting it would cost more than the call."""

from benchmarks.cycles import count_cycles


def test_a_call_leaves_no_reference_cycles() -> None:
    assert count_cycles() == 0
