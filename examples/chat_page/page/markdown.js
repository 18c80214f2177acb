/* Show a model's text with the little formatting that models use.
 *
 * Elements are made by name and filled with text: nothing in the text can become an element, an attribute other than
 * a checked link, or a script.
 */

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})(?:\s([\s\S]*))?$/;
const ITEM = /^(\s*)(?:[-*+•]|(\d{1,9})[.)])\s+([\s\S]*)$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const TABLE_LINE = /^\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/;
// Each pair has its bounds: looked for from every opening to the end of the text, pairs would take a page's breath away.
const INLINE = /(?<!`)(`{1,3})(?!`)([\s\S]{1,1000}?)(?<!`)\1(?!`)|\*\*(?=\S)([\s\S]{0,1000}?\S)\*\*|(?<![\w*])[*_](?=[^\s*_])([\s\S]{0,1000}?[^\s*_])[*_](?![\w*])|\[([^\]\n]{1,1000})\]\(((?:https?:\/\/|mailto:)[^\s()<>]+)\)|(https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]])/g;
const TURNING = /^(p|h\d|ul|ol|blockquote|table)$/; // each of these runs the way its own words do
const MAX_SPAN = 20_000; // a paragraph that long is no prose, and looking for pairs in it takes its time

/**
 * Show `text` in `parent`. Blocks that are already there and have not changed stay as they are, so that a selection
 * survives while the text grows.
 */
export function show(parent, text) {
  const wanted = blocks(text);
  wanted.forEach((block, place) => {
    const source = block.lines.join("\n");
    const there = parent.children[place];
    if (there?.source === source && there.kind === block.kind) return;
    const made = MAKERS[block.kind](block);
    made.source = source;
    made.kind = block.kind;
    if (there) there.replaceWith(made);
    else parent.append(made);
  });
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
}

/** Cut a text into blocks: each has a kind and its lines. */
function blocks(text) {
  const found = [];
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  let open = null; // the block that the next line may belong to
  const begin = (kind, line, more) => found.push((open = { kind, lines: [line], ...more }));
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at];
    const fence = line.match(FENCE);
    if (fence) {
      begin("code", line, { language: fence[2] });
      while (++at < lines.length && !(lines[at].trim().startsWith(fence[1]) && !lines[at].trim().slice(fence[1].length)))
        open.lines.push(lines[at]);
      open = null;
    } else if (!line.trim()) {
      if (open?.kind === "list" && ITEM.test(lines[at + 1] ?? "")) continue; // a list with room between its items
      open = null;
    } else if (HEADING.test(line)) {
      begin("heading", line);
      open = null;
    } else if (RULE.test(line)) {
      begin("rule", line);
      open = null;
    } else if (ITEM.test(line) && open?.kind !== "quote") {
      if (open?.kind === "list") open.lines.push(line);
      else begin("list", line);
    } else if (line.startsWith(">")) {
      if (open?.kind === "quote") open.lines.push(line);
      else begin("quote", line);
    } else if (open?.kind === "paragraph" && open.lines.length === 1 && line.includes("|") && TABLE_LINE.test(line.trim())) {
      open.kind = "table";
      open.lines.push(line);
    } else if (open && (open.kind !== "table" || line.includes("|"))) {
      open.lines.push(line);
    } else {
      begin("paragraph", line);
    }
  }
  return found;
}

const MAKERS = {
  paragraph: ({ lines }) => make("p", spans(lines.join("\n"))),
  rule: () => make("hr"),
  quote: ({ lines }) => make("blockquote", spans(lines.map((line) => line.replace(/^> ?/, "")).join("\n"))),

  heading({ lines: [line] }) {
    const [, marks, words = ""] = line.match(HEADING);
    return make(`h${Math.min(6, marks.length + 2)}`, spans(words.trim().replace(/\s#+$/, ""))); // below the page's own
  },

  code({ lines, language }) {
    const box = document.getElementById("t-code").content.firstElementChild.cloneNode(true);
    const text = lines.slice(1).join("\n");
    box.querySelector("span").textContent = language;
    box.querySelector("code").textContent = text;
    box.querySelector("button").addEventListener("click", async ({ currentTarget: button }) => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    });
    box.querySelector("button").hidden = !navigator.clipboard; // there is none on an unencrypted page
    box.querySelector("pre").tabIndex = 0; // so that the keyboard can scroll it
    return box;
  },

  list({ lines }) {
    const levels = [];
    for (const line of lines) {
      const item = line.match(ITEM);
      if (!item) {
        levels.at(-1).list.lastElementChild.append("\n", ...spans(line.trim()));
        continue;
      }
      const [, space, number, words] = item;
      while (levels.length > 1 && space.length < levels.at(-1).depth) levels.pop();
      if (!levels.length || space.length > levels.at(-1).depth + 1) {
        const list = make(number ? "ol" : "ul");
        if (number) list.start = Number(number);
        if (levels.length) levels.at(-1).list.lastElementChild.append(list);
        levels.push({ list, depth: space.length });
      }
      levels.at(-1).list.append(make("li", spans(words)));
    }
    return levels[0].list;
  },

  table({ lines: [head, , ...rows] }) {
    const row = (line, cell) => make("tr", cells(line).map((words) => make(cell, spans(words))));
    const table = make("table", [make("thead", [row(head, "th")]), make("tbody", rows.map((line) => row(line, "td")))]);
    const box = make("div", [table]); // wide tables scroll, the page does not
    box.className = "wide";
    box.tabIndex = 0;
    return box;
  },
};

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());

/** Text with code, bold, emphasis and links, as nodes. */
function spans(text) {
  if (text.length > MAX_SPAN) return [text];
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    const [all, , code, bold, emphasis, label, target, address] = found;
    nodes.push(text.slice(at, found.index));
    at = found.index + all.length;
    if (code !== undefined) nodes.push(make("code", [code.trim() || code]));
    else if (bold !== undefined) nodes.push(make("strong", spans(bold)));
    else if (emphasis !== undefined) nodes.push(make("em", spans(emphasis)));
    else nodes.push(link(target ?? address, label ?? address));
  }
  nodes.push(text.slice(at));
  return nodes.filter((node) => node !== "");
}

function link(target, label) {
  const made = make("a", [label]);
  made.href = target; // http, https or mailto: the pattern lets nothing else through
  made.target = "_blank";
  made.rel = "noopener noreferrer nofollow";
  return made;
}

function make(name, children = []) {
  const made = document.createElement(name);
  if (TURNING.test(name)) made.dir = "auto";
  made.append(...children);
  return made;
}
