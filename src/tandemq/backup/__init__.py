"""Backups of stores, taken while a broker runs, and stores made from them."""
