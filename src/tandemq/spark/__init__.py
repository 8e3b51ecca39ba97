"""tandemq.spark"""
