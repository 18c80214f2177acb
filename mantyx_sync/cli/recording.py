"""`mantyx-sync record` and `replay`: keep what a program and the real server say to each other, and play it back."""

from __future__ import annotations

import argparse
from typing import Any

from .connecting import NO_ACCOUNT, add_client_options, read_key
from .exits import FAILED
from .loading import Unusable
from .parsing import add_command, seconds, speed
from .serving import port_number, serve, take_program, undisturbed
from .streams import note

__all__ = ["add_commands"]


def add_commands(groups: Any) -> None:
    """Add the commands to the parser's subparsers."""
    command = add_command(
        groups,
        "record",
        _record,
        "record what a program and the real server say to each other",
        words="FILE [-- COMMAND ...]",
        details="Runs the command with variables that point its client at a server in between, and ends with\n"
        "its exit code. Without a command, prints the variables and records until Ctrl-C. The file holds\n"
        "no credentials; the command gets none either. Prompts and answers are in it as they are: name\n"
        "what else must not be with --secret.",
        examples="""
        mantyx-sync record tests/recordings/order.jsonl -- python my_program.py
        mantyx-sync record order.jsonl --secret "Jane Doe" -- ./program-in-any-language
        """,
    )
    command.add_argument("file", metavar="FILE", help="where it is kept; replaced if it is there")
    command.add_argument("--secret", action="append", metavar="TEXT", help="a text to leave out; may be repeated")
    add_client_options(command)
    command.add_argument("--port", type=port_number, default=0, help="the port (default: a free one)")
    take_program(command)

    command = add_command(
        groups,
        "replay",
        _replay,
        "play a recording to a program",
        words="FILE [-- COMMAND ...]",
        details="Runs the command with variables that point its client at the recording, and ends with its\n"
        "exit code, or with 1 if it asked for something else than what was recorded. Without a command,\n"
        "prints the variables and plays until Ctrl-C.",
        examples="""
        mantyx-sync replay tests/recordings/order.jsonl -- python my_program.py
        mantyx-sync replay order.jsonl --speed 1 --max-gap 0.5
        """,
    )
    command.add_argument("file", metavar="FILE", help="the recording")
    command.add_argument("--speed", type=speed, metavar="N", help="times as fast as it was (default: without pauses)")
    command.add_argument("--max-gap", type=seconds, metavar="SECONDS", help="cut pauses to so long")
    command.add_argument(
        "--ignore", action="append", metavar="PLACE", help="what may differ, such as metadata.trace_id; may be repeated"
    )
    command.add_argument("--port", type=port_number, default=0, help="the port (default: a free one)")
    take_program(command)


def _record(options: argparse.Namespace) -> int:
    from ..errors import MantyxConfigError
    from ..local import RecordingServer

    try:
        server = RecordingServer(
            options.file,
            api_key=read_key(options.api_key_file),
            workspace_slug=options.workspace,
            base_url=options.base_url,
            secrets=options.secret or (),
            port=options.port,
        )
    except MantyxConfigError as error:
        raise Unusable(NO_ACCOUNT if str(error).startswith("api_key and workspace_slug") else str(error)) from None
    try:
        server.start()
    except OSError as error:
        raise Unusable(str(error)) from None
    try:
        code = serve(options.program, server.environment(), f"recording to {options.file} at {server.url}")
    finally:
        with undisturbed():
            number = server.recorded
            if not number:
                server.discard()  # rather than putting nothing in the place of what there was
            server.stop()
    if not number:
        note(f"nothing was recorded, and {options.file} not written: no request came")
        return code or FAILED
    note(f"{options.file}: {number} request{'' if number == 1 else 's'} recorded")
    return code


def _replay(options: argparse.Namespace) -> int:
    from ..local import RecordingError, ReplayServer

    try:
        server = ReplayServer(
            options.file,
            speed=options.speed or float("inf"),
            max_gap=options.max_gap,
            ignore=options.ignore or (),
            port=options.port,
        )
        server.start()
    except (RecordingError, OSError) as error:
        raise Unusable(str(error)) from None
    with server:
        code = serve(options.program, server.environment(), f"playing {options.file} at {server.url}")
        for unmatched in server.unmatched:
            note(str(unmatched))
        unused = server.unused if options.program else []
        if unused and not server.unmatched:
            note(f"{options.file}: not asked for: {', '.join(unused)}")
        return code or (FAILED if server.unmatched else code)
