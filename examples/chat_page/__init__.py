"""What the two chat examples share: the page that a browser loads, and the agent behind it."""
