"""tandemq.replication"""
