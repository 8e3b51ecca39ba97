"""tandemq.testing"""
