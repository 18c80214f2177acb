"""Tools: the refs a spec lists, Python functions as tools, and the executor that answers calls."""
