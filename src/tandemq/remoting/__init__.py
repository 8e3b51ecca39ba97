"""tandemq.remoting"""
