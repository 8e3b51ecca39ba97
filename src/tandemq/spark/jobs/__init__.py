"""Jobs shipped ready to run: each module is one, a function from plain arguments to a result that people and JSON
read.
"""
