"""What the scenario server plays: a run's events, as bytes that are ready to send. No I/O here.

A client asks for a play by putting its JSON into the prompt of an ordinary run, so every contender orders its
scenario through its own public calls.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Dict, Iterator, Optional

__all__ = ["Play", "body", "chunk", "frame", "frames", "ping_answer", "result_frame"]

BLOCK_BYTES = 64 * 1024
LAST_CHUNK = b"0\r\n\r\n"

# What a model's deltas look like: short words, now and then an escape or a letter outside ASCII.
_WORDS = [" the", " order", " was", " shipped", ".\\n\\n", " It", " arrives", " tomorrow", ", caf\u00e9", ' \\"17\\"']


@dataclass(frozen=True)
class Play:
    """One kind of run.

    `text` sends `count` deltas, `large` one message of `size_bytes`, both as fast as the client reads;
    `ticks` sends a time stamp every `interval_s`; `calls` asks for `count` tool calls with `at_once` of them open.
    """

    kind: str
    count: int = 0
    block_bytes: int = 0  # 0: one HTTP chunk per event; otherwise the body is cut into chunks of this size
    size_bytes: int = 0
    interval_s: float = 0.0
    at_once: int = 1
    group: str = ""  # runs of one group start when `group_size` of them have their stream open
    group_size: int = 0

    @property
    def is_live(self) -> bool:
        """Whether events come one by one, in answer to time or to the client."""
        return self.kind in ("ticks", "calls")

    def prompt(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if value})

    @property
    def last_seq(self) -> int:
        """The seq of the terminal event of a play that is not live."""
        return 2 if self.kind == "large" else self.count + 1

    @classmethod
    def from_prompt(cls, prompt: str) -> Play:
        fields: Dict[str, Any] = json.loads(prompt)
        return cls(**fields)


def frame(seq: int, event_type: str, data: Any) -> bytes:
    """One SSE frame in the envelope of wire section 4."""
    envelope = {"seq": seq, "type": event_type, "data": data}
    text = json.dumps(envelope, separators=(",", ":"), ensure_ascii=False)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, event_type.encode(), text.encode())


def result_frame(seq: int, text: str) -> bytes:
    """The terminal event of a run that went well."""
    data = {
        "ok": True,
        "subtype": "success",
        "text": text,
        "tokens": {"inputTokens": 1283, "cachedTokens": 512, "reasoningTokens": 0, "outputTokens": 240},
        "turns": 1,
        "model": {"id": "platform:demo", "provider": "openai", "vendorModelId": "demo-mini"},
    }
    return frame(seq, "result", data)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def ping_answer(number: int) -> str:
    """What the one tool of the benchmark answers."""
    return f"pong {number}"


def frames(play: Play, after: int = 0) -> Iterator[bytes]:
    """The frames of a `text` or `large` play whose seq is above `after`."""
    if play.kind == "large":
        line = "All work and no play makes a dull benchmark. "
        text = (line * (play.size_bytes // len(line) + 1))[: play.size_bytes]
        if after < 1:
            yield frame(1, "assistant_message", {"text": text, "turn": 0, "finishReason": "end_turn"})
    else:
        # `%d` into ready-made bytes: encoding half a million events one by one would take seconds.
        shapes = [
            b'id: %%d\nevent: assistant_delta\ndata: {"seq":%%d,"type":"assistant_delta","data":{"text":"%s"}}\n\n'
            % word.encode()
            for word in _WORDS
        ]
        for seq in range(after + 1, play.count + 1):
            yield shapes[seq % len(shapes)] % (seq, seq)
    if after < play.last_seq:
        yield result_frame(play.last_seq, f"last {play.last_seq}")


def body(play: Play, after: Optional[int] = None) -> bytes:
    """The chunked HTTP body of a `text` or `large` play, from behind seq `after`."""
    if not after:
        return _whole_body(play)
    return _chunked(play, after)


@lru_cache(maxsize=3)
def _whole_body(play: Play) -> bytes:
    return _chunked(play, 0)


def _chunked(play: Play, after: int) -> bytes:
    if not play.block_bytes:
        return b"".join([chunk(data) for data in frames(play, after)]) + LAST_CHUNK
    whole = b"".join(frames(play, after))
    step = play.block_bytes
    pieces = [chunk(whole[start : start + step]) for start in range(0, len(whole), step)]
    return b"".join(pieces) + LAST_CHUNK
