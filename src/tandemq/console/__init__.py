"""The console: a web application that shows a cluster and acts on it.

It is a client of name servers and brokers like any other and keeps nothing on disk: what its pages show is asked, and
what its charts show began with its process.
"""
