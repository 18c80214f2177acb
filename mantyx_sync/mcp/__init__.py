"""A synchronous MCP client: stdio and Streamable HTTP, handshake and stateless revisions, threads only."""
