"""tandemq.client"""
