"""What keeps sessions and workers of Spark running smoothly."""
