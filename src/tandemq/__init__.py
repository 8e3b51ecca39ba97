"""TandemQ: a RocketMQ-compatible broker with master/slave high availability, and its data pipeline on Spark."""

__version__ = "0.1.0"
"""The one place of the version: the package, `--version`, metrics, runtime info and documents take it from here."""
