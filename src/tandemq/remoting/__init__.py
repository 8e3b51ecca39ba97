"""The asyncio shell around the remoting codec: connections, a server with a dispatch table, a client by address."""
