"""A2A, both ways, without an event loop: a client for agents of others, and a WSGI app that makes an agent a peer."""
