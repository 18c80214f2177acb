"""A chat page with Django: answers stream in, with their tools and plan; they can be stopped, and outlive a reload.

    pip install django
    python examples/django_chat/manage.py runserver

In production, with one process; with MANTYX_API_KEY and CHAT_SECRET set, with any number of them:

    CHAT_HOSTS=chat.example.com gunicorn --chdir examples/django_chat --worker-class gthread --threads 32 desk.wsgi
    cd examples/django_chat && CHAT_HOSTS=chat.example.com waitress-serve --threads 32 desk.wsgi:application

Each open answer takes a thread of the server for as long as it is written, so a worker needs several.
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "desk.settings")
    execute_from_command_line(sys.argv)
