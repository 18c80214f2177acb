"""MCP servers over stdio, written by hand: each is a program that a test starts."""
