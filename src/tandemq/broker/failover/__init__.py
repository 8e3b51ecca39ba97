"""Failover of a group with a coordinator: who stands, who is elected, how long a reign lasts without a word."""
