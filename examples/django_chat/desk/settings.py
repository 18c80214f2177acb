"""No database, no templates: sessions are signed cookies, and the conversations are on the MANTYX server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # chat_page is there

from chat_page import agent

SECRET_KEY = agent.SECRET
ALLOWED_HOSTS = os.environ.get("CHAT_HOSTS", "localhost,127.0.0.1,[::1]").split(",")
ROOT_URLCONF = "desk.urls"
WSGI_APPLICATION = "desk.wsgi.application"
MIDDLEWARE = [
    "desk.middleware.ChatMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
SESSION_COOKIE_NAME = "chat"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = agent.HTTPS
DATA_UPLOAD_MAX_MEMORY_SIZE = agent.MAX_BODY_BYTES
USE_TZ = True
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
