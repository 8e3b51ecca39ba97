"""Queries tell the sources what they need: columns and conditions, without options."""
