/* The page: what the reader types and presses, and which run it follows.
 *
 * A message is posted, and the answer to the post is the stream of its run. After a reload, and when the connection
 * broke, the stream is taken up again at `events`. What was said before comes from `conversation`.
 */

import { Lost, Refused, call, follow, looking, pause, posting } from "./stream.js";
import { Turn } from "./turn.js";

const $ = (id) => document.getElementById(id);
const conversation = $("conversation");
const text = $("text");
const others = new BroadcastChannel(`chat ${location.pathname}`); // this browser's other windows with the page

const MAX_POSTS = 4;
const GONE = new Set(["not_found", "session_ended"]); // why the server knows a conversation no longer
let current = null; // the exchange whose run goes on
let loads = 0; // how often the conversation was asked for,
let loaded = 0; // and which of these is shown: the last one, unless it is on its way

// ---- running

/** Ask, and follow the answer. */
function ask(said) {
  const turn = add(new Turn(said, () => again(turn)));
  return watch(turn, () => deliver(turn, newId()));
}

/** The same question once more, in the place of the one that failed. */
async function again(turn) {
  if (current) return;
  turn.element.remove();
  if (GONE.has(turn.failure)) await call("new", {}).catch(() => null);
  ask(turn.said);
}

/** Post a message until it is known to have arrived, and follow its run. With its id it is said once, however often. */
async function deliver(turn, id) {
  const post = posting("messages", { text: turn.said, id });
  for (let attempt = 1; ; attempt++) {
    try {
      return await follow(watcher(turn), post, looking("events"));
    } catch (error) {
      if (!(error instanceof Lost) || attempt === MAX_POSTS) throw error;
    }
    const { run } = await reached();
    if (run?.message === id) return follow(watcher(turn), looking("events"));
    await pause(250 * attempt);
  }
}

/** Wait until the server answers; return the conversation. */
async function reached() {
  $("connection").hidden = false;
  for (let waits = 250; ; waits = Math.min(waits * 2, 8000)) {
    try {
      const found = await call("conversation");
      $("connection").hidden = true;
      return found;
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
    }
    await pause(waits);
  }
}

/** Follow a run to its end, whatever that is. */
async function watch(turn, following) {
  current = turn;
  showState();
  let hasMovedOn = false;
  try {
    await following();
  } catch (error) {
    if (error instanceof Refused) {
      hasMovedOn = error.code === "moved_on";
      turn.fail(error.code, error.message);
    } else if (error instanceof Lost) turn.fail("network");
    else throw error;
  } finally {
    $("connection").hidden = true;
    current = null;
    showState();
    say({ stopped: "Stopped", failed: "There is no answer" }[turn.element.dataset.state] ?? "The answer is complete");
  }
  if (hasMovedOn) await load(); // another window asked something while this one had no connection
}

function watcher(turn) {
  turn.onGrowth = keepUp;
  turn.onStatus = say;
  turn.onRun = (runId) => {
    if (turn.isStopping) stop();
    if (!turn.isReplayed) others.postMessage(runId);
  };
  return {
    event: (type, data, id) => turn.take(type, data, id),
    lost: () => ($("connection").hidden = false),
    back: () => ($("connection").hidden = true),
  };
}

/** Stop the run. The end comes with its stream, as any other. */
async function stop() {
  const turn = current;
  if (!turn) return;
  turn.isStopping = true; // if its run has no name yet, it is stopped once it has
  $("stop").disabled = true;
  text.focus({ preventScroll: true });
  if (!turn.runId) return;
  try {
    await call("stop", { run: turn.runId });
  } catch {
    $("stop").disabled = false; // it can be pressed again
    say("It could not be stopped");
  }
}

// ---- the conversation

/** Show what was said so far, and follow the last run: it may still be going on. */
async function load() {
  const mine = ++loads;
  const found = await call("conversation").catch((error) => {
    if (error instanceof Lost || error instanceof Refused) return null;
    throw error;
  });
  if (mine !== loads) return undefined; // another one is on its way
  loaded = mine;
  clear();
  if (!found) {
    const turn = add(new Turn("", () => (turn.element.remove(), load())));
    showState();
    return turn.fail("network");
  }
  for (const [said, answer] of found.turns) add(Turn.past(said, answer));
  $("welcome").hidden = found.turns.length > 0 || Boolean(found.run);
  showState();
  if (!found.run) return undefined;
  const turn = add(new Turn(found.run.said, () => again(turn)).replays());
  turn.isReplayed = true;
  return watch(turn, () => follow(watcher(turn), looking("events")));
}

async function startNew() {
  await call("new", {}).catch(() => null);
  others.postMessage("new");
  clear();
  $("welcome").hidden = false;
  showState();
  text.focus();
}

function clear() {
  conversation.querySelectorAll(".turn").forEach((turn) => turn.remove());
}

function add(turn) {
  $("welcome").hidden = true;
  conversation.append(turn.element);
  isFollowing = true;
  keepUp();
  return turn;
}

// ---- what the reader does

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const said = text.value.trim();
  if (!said || isBusy()) return;
  text.value = "";
  grow();
  ask(said);
});

text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return; // 229: Safari's word for composing
  event.preventDefault();
  $("composer").requestSubmit();
});

text.addEventListener("input", grow);
$("stop").addEventListener("click", ({ detail: clicks }) => {
  if (clicks < 2) stop(); // it stands where Send was: the second of two quick clicks was meant for that
});
$("new").addEventListener("click", startNew);

for (const button of document.querySelectorAll(".suggestions button"))
  button.addEventListener("click", () => {
    if (!isBusy()) ask(button.textContent);
    text.focus({ preventScroll: true });
  });

// Another window of this browser asked something, or began anew: show it here too.
others.addEventListener("message", () => current || load());
// The browser kept this page while others were looked at, and heard nothing meanwhile.
addEventListener("pageshow", ({ persisted }) => persisted && !current && load());

function grow() {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, 220)}px`;
  $("send").disabled = isBusy() || !text.value.trim();
}

function isBusy() {
  return Boolean(current) || loaded !== loads;
}

// ---- what the page says of itself

function showState() {
  const isRunning = Boolean(current);
  conversation.setAttribute("aria-busy", String(isRunning));
  document.body.classList.toggle("running", isRunning);
  $("stop").hidden = !isRunning;
  $("stop").disabled = false;
  $("send").hidden = isRunning;
  $("new").hidden = isRunning || !conversation.querySelector(".turn");
  grow();
  if (isRunning) say("Answering");
}

function say(words) {
  $("status").textContent = words;
}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-");
}

// ---- scrolling: along with the text, unless the reader looks at something above

let isFollowing = true;
let scrolledTo = 0;

const below = () => document.documentElement.scrollHeight - innerHeight - scrollY;

function keepUp() {
  if (isFollowing) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  else $("down").hidden = below() < 24;
}

addEventListener("scroll", () => {
  if (below() <= 1) isFollowing = true;
  else if (scrollY < scrolledTo) isFollowing = false; // only readers scroll up
  else if (below() < 24) isFollowing = true;
  scrolledTo = scrollY;
  $("down").hidden = isFollowing || below() < 24;
});

addEventListener("resize", keepUp);
conversation.addEventListener("click", ({ target }) => {
  if (target.closest("summary")) isFollowing = false; // what was opened is what the reader wants to see
});
conversation.addEventListener("toggle", keepUp, { capture: true });

$("down").addEventListener("click", () => {
  isFollowing = true;
  keepUp();
  text.focus({ preventScroll: true });
});

load();
