"""tandemq.store"""
