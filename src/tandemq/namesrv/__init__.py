"""tandemq.namesrv"""
