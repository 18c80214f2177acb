/* One exchange on the page: what was said, and what came of it, event by event. */

import { show } from "./markdown.js";

const REPLAY_GAP_MS = 150; // events of the past come closer together than this
const COSTLY_MS = 8; // half of a frame's time
const STEP_WORDS = { pending: "to do", in_progress: "under way", done: "done", blocked: "blocked", skipped: "skipped" };
const REASONS = {
  rate_limit_exceeded: "Too many questions at once just now. Try again in a moment.",
  rate_limit: "Too many questions at once just now. Try again in a moment.",
  overloaded: "The model is very busy just now. Try again in a moment.",
  context_window: "This conversation has become too long. Start a new one.",
  truncation: "The answer became too long and was cut off.",
  timeout: "That took too long, so it was given up.",
  refusal: "The model would not answer this.",
  network: "The agent cannot be reached just now. Try again in a moment.",
  not_found: "This conversation is no longer kept. Asking again begins a new one.",
  session_ended: "This conversation has ended. Asking again begins a new one.",
  shutting_down: "The server is being restarted. Try again in a moment.",
  session_busy: "An answer is still being written, maybe in another window.",
};

export class Turn {
  /** @param retry called when the reader wants the question asked again; null if it cannot be */
  constructor(said, retry = null) {
    this.said = said;
    this.retry = retry;
    this.element = stamp("t-turn");
    this.answer = this.element.querySelector(".answer");
    this.waiting = this.answer.querySelector(".waiting");
    this.element.querySelector(".said").textContent = said;
    this.isOver = false;
    this.failure = null; // why there is no answer
    this.runId = null;
    this.plain = ""; // the answer's text, for readers of the status line
    this.tools = new Map();
    this.inputs = new Map(); // what the model gave its tools, by tool use
    this.places = new Set();
    this.block = null; // the text or thinking that grows now
    this.began = performance.now();
    this.isLive = true;
    this.last = this.began;
  }

  /** Show an exchange of the past, of which nothing but the text is left. */
  static past(said, answer) {
    const turn = new Turn(said);
    turn.write("text", answer);
    turn.end();
    return turn;
  }

  /** What comes now happened before: how long it took cannot be told. */
  replays() {
    this.isLive = false;
    return this;
  }

  /** Take one event of the run. One that was taken before changes nothing. */
  take(type, data, id) {
    const now = performance.now();
    if (!this.isLive && now - this.last > REPLAY_GAP_MS && this.places.size > 1) this.isLive = true;
    this.last = now;
    if (id !== null && this.places.has(id)) return;
    this.places.add(id);
    TAKERS[type]?.call(this, data);
  }

  /** Add to the text or thinking that is being written. */
  write(kind, text) {
    if (!text) return;
    if (this.block?.kind !== kind) {
      this.closeBlock();
      const element = kind === "text" ? Object.assign(document.createElement("div"), { className: "text" }) : stamp("t-thinking");
      this.block = { kind, element, source: "", began: performance.now() };
      this.put(element);
    }
    this.block.source += text;
    this.draw(this.block);
  }

  draw(block) {
    if (block.isDrawn === false) return; // it will be
    block.isDrawn = false;
    const paint = () => {
      const began = performance.now();
      block.isDrawn = true;
      if (block.kind === "text") show(block.element, block.source);
      else block.element.querySelector("div").textContent = block.source;
      this.onGrowth?.();
      block.cost = performance.now() - began;
    };
    if (this.isOver || document.hidden) paint(); // a page in the background is given no frames
    else if (block.cost > COSTLY_MS) setTimeout(paint, 3 * block.cost); // a table without an end: the reader scrolls too
    else requestAnimationFrame(paint);
  }

  closeBlock() {
    const block = this.block;
    this.block = null;
    if (!block) return;
    if (block.kind === "text") {
      this.plain = block.source;
      return;
    }
    const seconds = (performance.now() - block.began) / 1000;
    block.element.querySelector("span").textContent = this.isLive && seconds >= 1 ? `Thought for ${took(seconds)}` : "Thought";
    block.element.classList.add("done");
  }

  put(element) {
    this.waiting.before(element);
    this.onGrowth?.();
  }

  callsTool(id, name, args) {
    this.closeBlock();
    if (this.tools.has(id)) return;
    const card = stamp("t-tool");
    card.querySelector(".name").textContent = name;
    card.querySelector(".brief").textContent = brief(args);
    fill(card, "args", args);
    card.querySelector(".state b").textContent = "running";
    const tool = { card, began: this.isLive ? performance.now() : null };
    if (tool.began !== null) tool.timer = setInterval(() => this.tick(tool), 100);
    this.tools.set(id, tool);
    this.put(card);
    this.onStatus?.(`Using ${name}`);
  }

  tick(tool) {
    const seconds = (performance.now() - tool.began) / 1000;
    if (seconds >= 0.3) tool.card.querySelector(".took").textContent = took(seconds);
  }

  endTool(id, state, back) {
    const tool = this.tools.get(id);
    if (!tool || tool.card.dataset.state !== "running") return;
    clearInterval(tool.timer);
    tool.card.dataset.state = state;
    tool.card.querySelector(".state b").textContent = { done: "done", failed: "failed", stopped: "stopped" }[state];
    const took_ = tool.card.querySelector(".took");
    took_.textContent = tool.began !== null && this.isLive ? took((performance.now() - tool.began) / 1000) : "";
    tool.card.querySelector("dt.result").textContent = state === "failed" ? "Error" : "Result";
    fill(tool.card, "result", back);
    this.onGrowth?.();
  }

  plan({ brief: aim, steps = [] }) {
    if (!steps.length) return;
    if (!this.checklist) {
      this.checklist = stamp("t-plan");
      this.answer.prepend(this.checklist);
    }
    const done = steps.filter((step) => step.status === "done").length;
    this.checklist.querySelector("h3").textContent = aim && aim !== this.said ? aim : "Plan";
    this.checklist.querySelector(".count").textContent = `${done} of ${steps.length}`;
    this.checklist.classList.toggle("done", done === steps.length);
    const list = this.checklist.querySelector("ol");
    steps.forEach((step, place) => {
      const item = list.children[place] ?? list.appendChild(stamp("t-step"));
      item.querySelector(".title").textContent = step.title;
      if (item.dataset.status === step.status) return; // set again, its circle would begin to turn anew
      item.dataset.status = step.status;
      item.querySelector("b").textContent = STEP_WORDS[step.status] ?? step.status;
    });
    while (list.children.length > steps.length) list.lastElementChild.remove();
    this.onGrowth?.();
  }

  note(words, icon = "info") {
    const note = stamp("t-note");
    note.querySelector("use").setAttribute("href", `#i-${icon}`);
    note.querySelector("span").textContent = words;
    this.put(note);
  }

  /** Say that it went wrong, and end. */
  fail(code, why = "") {
    if (this.isOver) return;
    this.failure = code;
    this.end("failed");
    const notice = stamp("t-notice");
    const words = REASONS[code];
    notice.querySelector(".what").textContent = words ?? "Something went wrong, and there is no answer.";
    notice.querySelector(".why").textContent = why;
    notice.querySelector(".why").hidden = Boolean(words) || !why;
    const button = notice.querySelector("button");
    button.textContent = "Try again";
    button.hidden = !this.retry;
    button.addEventListener("click", () => this.retry());
    this.put(notice);
  }

  end(state = "done") {
    this.isOver = true;
    this.closeBlock();
    for (const id of this.tools.keys()) this.endTool(id, "stopped");
    this.element.dataset.state = state;
    this.waiting.hidden = true;
    this.onGrowth?.();
  }
}

const TAKERS = {
  run({ runId }) {
    this.runId = runId;
    this.onRun?.(runId);
  },
  assistant_delta({ text }) {
    this.write("text", text);
  },
  thinking_delta({ text }) {
    this.write("thinking", text);
  },
  assistant_message({ text, toolCalls = [] }) {
    for (const { id, input } of toolCalls) this.inputs.set(id, input);
    // What was streamed before is this text, piece by piece; without pieces it comes whole.
    if (text && this.block?.kind === "text") {
      this.block.source = text;
      this.draw(this.block);
    } else this.write("text", text);
    this.closeBlock();
  },
  local_tool_call({ toolUseId, name, args }) {
    this.callsTool(toolUseId, name, args);
  },
  local_tool_result_in({ toolUseId, output, result, error }) {
    this.endTool(toolUseId, error == null ? "done" : "failed", error == null ? (output ?? result) : said(error));
  },
  tool_call({ toolUseId, name, input }) {
    this.callsTool(toolUseId, name, input);
  },
  tool_result({ toolUseId, name, ok, result, summary }) {
    this.callsTool(toolUseId, name, this.inputs.get(toolUseId));
    this.endTool(toolUseId, ok === false ? "failed" : "done", summary ?? result);
  },
  task_plan(data) {
    this.plan(data.plan ?? data);
  },
  loop_detected({ hardCutoff }) {
    this.note(hardCutoff ? "It repeated itself, so it was asked to answer now." : "It repeated itself and was told so.");
  },
  tool_budget_exceeded({ tool }) {
    this.note(`${tool} was used as often as it may be.`);
  },
  supervisor({ action, reason }) {
    if (action && action !== "on_track") this.note(reason || "The supervisor stepped in.");
  },
  model_fallback() {
    this.note("Another model took over.");
  },
  tool_files({ files = [] }) {
    this.note(`Files: ${files.map((file) => file.filename).join(", ")}`);
  },
  result({ ok, subtype, text, error }) {
    if (ok === false || (subtype && subtype !== "success")) return this.fail(subtype, said(error));
    this.closeBlock();
    if (text && text !== this.plain) this.write("text", text);
    this.end();
    return undefined;
  },
  error({ error, code, errorClass, partialText }) {
    if (!this.plain && !this.block) this.write("text", partialText);
    this.fail(errorClass ?? code, said(error));
  },
  cancelled() {
    this.end("stopped");
    this.note("Stopped.", "stop");
  },
};

/** Show a part of a tool's card, if there is anything in it. */
function fill(card, part, value) {
  const shown = pretty(value);
  card.querySelector(`pre.${part}`).textContent = shown;
  card.querySelector(`dt.${part}`).hidden = card.querySelector(`dd.${part}`).hidden = !shown;
}

/** Copy what is in a template. */
function stamp(id) {
  return document.getElementById(id).content.firstElementChild.cloneNode(true);
}

function took(seconds) {
  if (seconds < 0.1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
}

function brief(args) {
  if (args === null || typeof args !== "object") return args === undefined ? "" : String(args);
  return Object.entries(args)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

function pretty(value) {
  if (typeof value === "string") {
    try {
      const parsed = JSON.parse(value); // results travel as text, also where they are JSON
      if (parsed !== null && typeof parsed === "object") return JSON.stringify(parsed, null, 2);
    } catch {
      return value;
    }
    return value;
  }
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}

/** Errors are text, or objects that hold one. */
function said(error) {
  return typeof error === "string" ? error : (error?.message ?? "");
}
