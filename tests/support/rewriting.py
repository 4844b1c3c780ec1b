"""Test modules with rewritten assertions, made by all processes of a run together.

pytest rewrites the assertions of a module at its first import and keeps the bytecode. Processes that share out the
tests collect all of them at the same time and in the same order, so on a new checkout each would rewrite every module.
"""

from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)

TESTS = Path(__file__).resolve().parents[1]


def rewrite_share(config: pytest.Config, number: int, count: int) -> None:
    """Rewrite each `count`th test module from `number` on, unless pytest has its bytecode."""
    for source in sorted(TESTS.rglob("test_*.py"))[number::count]:
        bytecode = get_cache_dir(source) / (source.stem + PYC_TAIL)
        if _read_pyc(source, bytecode) is None and try_makedirs(bytecode.parent):
            digest, code = _rewrite_test(source, config)
            _write_pyc(config.stash[assertstate_key], code, digest, bytecode)
