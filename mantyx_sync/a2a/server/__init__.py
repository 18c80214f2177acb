"""Being asked: an agent of ours as a peer of A2A."""
