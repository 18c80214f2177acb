"""A stand-in for the Loom service: a scripted workflow engine, and a server that offers it over MCP."""
