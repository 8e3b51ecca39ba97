"""tandemq.codec"""
