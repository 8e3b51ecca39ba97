"""The replication simulator: production code under a simulated clock, network and disk (`tandemq sim`)."""
