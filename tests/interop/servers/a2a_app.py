"""Our A2A app under a WSGI server that others wrote: `a2a_app.py waitress|gunicorn|flask|django|own [FOLDER]`.

FOLDER is where the WSGI servers and frameworks are installed. The platform's address is in the environment, as the
client reads it. Says `url http://…` when callers can come.
"""

import socket
import sys
import threading
from typing import Any, Callable

sys.path.extend(sys.argv[2:3])  # behind our own, so that nothing of ours comes from there

from mantyx_sync import MantyxClient, ToolResultFile, tool
from mantyx_sync.a2a import A2AApp, ask_caller, current_task

THREADS = 16


@tool
def look() -> str:
    """Look."""
    task = current_task()
    assert task is not None
    task.share(ToolResultFile.from_bytes(b"picture", "seen.png"))
    return "seen"


def authorize(environ: Any) -> Any:
    return None if environ.get("HTTP_AUTHORIZATION") == "Bearer wrong" else environ.get("HTTP_X_CALLER", "anybody")


def say(url: str) -> None:
    sys.stdout.write(f"url {url}\n")
    sys.stdout.flush()


def make_app(url: str) -> A2AApp:
    return A2AApp(
        MantyxClient(),
        public_url=url,
        name="Helper",
        description="Helps.",
        system_prompt="You help.",
        tools=[look, ask_caller],
        authorize=authorize,
        heartbeat=0.2,
        security_schemes={"bearer": {"type": "http", "scheme": "bearer"}},
        security=[{"bearer": []}],
        card={"provider": {"organization": "Shop", "url": "https://shop.example"}},
    )


def listen() -> "tuple[socket.socket, str]":
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def with_waitress(wrap: Callable[[A2AApp], Any], path: str = "") -> None:
    import waitress

    listener, url = listen()
    server = waitress.create_server(wrap(make_app(url + path)), sockets=[listener], threads=THREADS)
    say(url + path)
    server.run()


def with_gunicorn() -> None:
    """One worker with threads, and the app made before the fork."""
    from gunicorn.app.base import BaseApplication

    listener, url = listen()
    app = make_app(url)

    class Application(BaseApplication):  # type: ignore[misc]  # of no known type here
        def load_config(self) -> None:
            options = {
                "bind": f"fd://{listener.fileno()}",
                "worker_class": "gthread",
                "threads": THREADS,
                "preload_app": True,
                "loglevel": "error",
                "graceful_timeout": 2,
                "post_worker_init": lambda worker: say(url),
                "worker_exit": lambda server, worker: app.close(),
            }
            for name, value in options.items():
                self.cfg.set(name, value)

        def load(self) -> A2AApp:
            return app

    Application().run()


def beside_flask(app: A2AApp) -> Any:
    from flask import Flask
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    site = Flask("site")
    site.add_url_rule("/", view_func=lambda: "the site")
    return DispatcherMiddleware(site, {"/agents/helper": app})


def beside_django(app: A2AApp) -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    urls = type(sys)("site_urls")
    urls.urlpatterns = [path("", lambda request: HttpResponse("the site"))]  # type: ignore[attr-defined]
    sys.modules["site_urls"] = urls
    settings.configure(ROOT_URLCONF="site_urls", ALLOWED_HOSTS=["*"], SECRET_KEY="x", DEBUG=False)
    django.setup()
    return DispatcherMiddleware(get_wsgi_application(), {"/agents/helper": app})


def by_itself() -> None:
    app = make_app("http://127.0.0.1:1")
    with app.serve() as server:
        app.mount(server.url)
        say(server.url)
        threading.Event().wait()


if __name__ == "__main__":
    {
        "waitress": lambda: with_waitress(lambda app: app),
        "gunicorn": with_gunicorn,
        "flask": lambda: with_waitress(beside_flask, "/agents/helper"),
        "django": lambda: with_waitress(beside_django, "/agents/helper"),
        "own": by_itself,
    }[sys.argv[1]]()
