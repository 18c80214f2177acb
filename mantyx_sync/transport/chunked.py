"""The chunked transfer coding (RFC 9112 §7.1), undone without holding anything back. Does no I/O.

`http.client` undoes it too, but its calls either wait for a full buffer or cost a few reads per chunk; a stream
of small events wants all chunks of one read at once.
"""

from __future__ import annotations

__all__ = ["BadChunk", "ChunkedDecoder"]

_MAX_LINE_BYTES = 64 * 1024


class BadChunk(Exception):
    """The body does not follow the chunked coding."""


class ChunkedDecoder:
    """Turn the bytes of a chunked body into the bytes it carries."""

    def __init__(self) -> None:
        self.finished = False
        self._line = b""  # a size or trailer line that has not ended
        self._left = 0  # bytes of the current chunk still to come
        self._skip = 0  # bytes of the CRLF behind a chunk still to come
        self._in_trailers = False

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body that `data` holds. What follows the end of the body is ignored.

        Raises:
            BadChunk: A size is not a hexadecimal number, or a chunk is not followed by a line end.
        """
        out = []
        position, end = 0, len(data)
        if self._line:
            data = self._line + data
            end = len(data)
            self._line = b""
        while position < end and not self.finished:
            if self._left:
                piece = data[position : position + self._left]
                out.append(piece)
                self._left -= len(piece)
                position += len(piece)
                continue
            if self._skip:
                if data[position] != (13 if self._skip == 2 else 10):
                    raise BadChunk("a chunk of the body is longer than its announced size")
                self._skip -= 1
                position += 1
                continue
            line_end = data.find(b"\n", position)
            if line_end < 0:
                self._line = data[position:]
                if len(self._line) > _MAX_LINE_BYTES:
                    raise BadChunk("a chunk size line does not end")
                break
            line = data[position:line_end]
            position = line_end + 1
            if self._in_trailers:
                self.finished = not line.strip()
                continue
            size = _size(line)
            if size == 0:
                self._in_trailers = True
                continue
            stop = position + size
            if stop + 2 <= end and data[stop] == 13 and data[stop + 1] == 10:  # the whole chunk is here: the usual case
                out.append(data[position:stop])
                position = stop + 2
            else:
                self._left, self._skip = size, 2
        return out[0] if len(out) == 1 else b"".join(out)


def _size(line: bytes) -> int:
    try:
        size = int(line.partition(b";")[0], 16)
    except ValueError:
        size = -1
    if size < 0:
        raise BadChunk("a chunk size of the body is not a hexadecimal number")
    return size
