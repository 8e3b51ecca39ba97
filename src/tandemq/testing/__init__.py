"""Helpers for tests: for ours, and `local_broker` with `pytest_plugin` for the tests of programs that use TandemQ."""
