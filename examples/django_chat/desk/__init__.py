"""A Django project that shows one page: the chat."""
