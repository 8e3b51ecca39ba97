"""tandemq.cli"""
