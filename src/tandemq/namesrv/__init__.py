"""The name server: which broker groups live, and which topics each of them offers. It knows no other name server."""
