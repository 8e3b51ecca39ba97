"""The Python client among brokers, name servers and members that die: `python -m bench.chaos`."""
