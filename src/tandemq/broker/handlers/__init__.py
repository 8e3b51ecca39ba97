"""tandemq.broker.handlers"""
