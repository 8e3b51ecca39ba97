"""Benchmarks: us and the peer alternately in one run. See README.md; `./run bench` lists them."""
