/* Follow one run: server-sent events over `fetch`, taken up again where they broke off.
 *
 * EventSource would reconnect as well, but it can neither post a message nor tell a refusal from a lost connection.
 */

const OVER = new Set(["result", "error", "cancelled"]);
const SILENCE_MS = 45_000; // the server sends a comment every few seconds: silence is a dead connection
const PAUSES_MS = [250, 1000, 2000, 4000, 8000];

/** The server answered, and not with a stream: it need not be asked the same again. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.error || `The server answered ${status}.`);
    this.status = status;
    this.code = body?.code || `http_${status}`;
  }
}

/** Nobody answered, or the answer broke off. */
export class Lost extends Error {}

/** Ask for JSON, or post some. Throws `Refused` or `Lost`. */
export async function call(path, body) {
  const response = await request(path, body === undefined ? {} : { method: "POST", body: JSON.stringify(body) });
  return response.json();
}

/** Post a message; the answer is the stream of its run. */
export const posting = (path, body) => (signal) => request(path, { method: "POST", body: JSON.stringify(body), signal });

/** Take up the stream of a run; `place` is the id of the last event that arrived. */
export const looking = (path) => (signal, place) => request(path, { signal, headers: place ? { "Last-Event-ID": place } : {} });

async function request(path, options) {
  const headers = { Accept: "text/event-stream, application/json", ...options.headers };
  if (options.method === "POST") {
    headers["Content-Type"] = "application/json"; // another site's form cannot send that
    headers["X-CSRFToken"] = document.cookie.match(/(?:^|; )csrftoken=([^;]*)/)?.[1] ?? "";
  }
  const response = await orLost(fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" }));
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => null));
}

async function orLost(answer) {
  try {
    return await answer;
  } catch (error) {
    throw new Lost(error.message);
  }
}

/**
 * Hand the events of a run to `watcher.event(type, data, id)` until the last one.
 *
 * Throws `Refused`, and `Lost` if posting the message broke off before its run was known: it may have arrived.
 *
 * @param watcher also told of `lost()` and `back()`
 * @param first opens the stream
 * @param again opens it behind the place that was reached
 */
export async function follow(watcher, first, again = first) {
  let open = first;
  let place = null;
  for (let failures = 0; ; failures++) {
    const line = new AbortController();
    const watchdog = new Watchdog(SILENCE_MS, () => line.abort());
    try {
      const response = await open(line.signal, place);
      for await (const event of frames(response, () => watchdog.rest())) {
        if (failures) watcher.back();
        failures = 0;
        place = event.id ?? place;
        watcher.event(event.type, event.data, event.id);
        if (OVER.has(event.type)) return;
      }
    } catch (error) {
      if (!(error instanceof Lost || (error instanceof Refused && error.status >= 500))) throw error;
    } finally {
      watchdog.end();
      line.abort();
    }
    if (place === null && again !== first) throw new Lost("no run");
    open = again;
    watcher.lost();
    await pause(PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]);
  }
}

/** Wait; shorter if the machine comes online meanwhile. */
export function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    function done() {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    }
  });
}

async function* frames(response, onBytes) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await orLost(reader.read());
    if (done) return; // a frame that did not arrive whole is dropped, and comes again
    onBytes();
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
  }
}

function parsed(block) {
  const event = { type: "message", id: null };
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, name, value] = line.match(/^([^:]*):? ?(.*)$/s);
    if (name === "data") data.push(value);
    else if (name === "event") event.type = value;
    else if (name === "id") event.id = value;
  }
  if (!data.length) return null; // a comment: the server is still there
  event.data = JSON.parse(data.join("\n"));
  return event;
}

class Watchdog {
  constructor(ms, bite) {
    this.ms = ms;
    this.bite = bite;
    this.rest();
  }

  rest() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.bite, this.ms);
  }

  end() {
    clearTimeout(this.timer);
  }
}
