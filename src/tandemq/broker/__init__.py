"""tandemq.broker"""
