"""The tables of a broker: topics, groups, offsets, locks and connected members, and how they are saved."""
