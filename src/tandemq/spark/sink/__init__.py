"""The sink: rows of Spark to topics."""
