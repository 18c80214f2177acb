"""What the page asks for."""

from __future__ import annotations

from chat_page import agent
from django.urls import path
from django.views.static import serve

from . import views

urlpatterns = [
    path("", views.page),
    path("static/<path:path>", serve, {"document_root": agent.PAGE}),
    path("conversation", views.conversation),
    path("messages", views.messages),
    path("events", views.events),
    path("stop", views.stop),
    path("new", views.new),
]
