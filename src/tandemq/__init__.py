"""TandemQ: a RocketMQ-compatible broker with master/slave high availability, and its data pipeline on Spark."""

__version__ = "0.1.0"
