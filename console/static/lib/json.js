// JSON as text: indented, and looked into, without ever turning its numbers into JavaScript's, which would round them.
//
// A payload may be cut off, and comes from anybody: what cannot be read ends the tree, and depth and size are bounded.
const DEPTH_MAX = 100;
const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\]|\\[^])*"?)|([^\s{}[\],:"]+))/y;

/** Yield tokens: [kind, text], where kind is a punctuation mark, "string" or "literal". */
function* tokens(text) {
  TOKEN.lastIndex = 0;
  let at = 0;
  for (;;) {
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(text);
    if (!match) return;
    at = TOKEN.lastIndex;
    if (match[1]) yield [match[1], match[1]];
    else if (match[2]) yield ["string", match[2]];
    else yield ["literal", match[3]];
  }
}

/**
 * Return JSON with line breaks, as a list of [class, text] to show; null if it is too deep or not JSON at all.
 * A text that is cut off is shown up to there.
 */
export function indented(text) {
  const out = [];
  let depth = 0;
  let before = null;
  const line = () => out.push(["", `\n${"  ".repeat(depth)}`]);
  for (const [kind, token] of tokens(text)) {
    if (kind === "{" || kind === "[") {
      if (before === "{" || before === "[") line();
      out.push(["", token]);
      depth += 1;
      if (depth > DEPTH_MAX) return null;
    } else if (kind === "}" || kind === "]") {
      depth -= 1;
      if (depth < 0) return null;
      if (before !== "{" && before !== "[") line();
      out.push(["", token]);
    } else if (kind === ",") {
      out.push(["", token]);
      line();
    } else if (kind === ":") {
      const last = out[out.length - 1];
      if (last?.[0] === "j-string") last[0] = "j-key";
      out.push(["", ": "]);
    } else {
      if (before === "{" || before === "[") line();
      out.push([kind === "string" ? "j-string" : /^[-\d]/.test(token) ? "j-number" : "j-literal", token]);
    }
    before = kind;
  }
  return out;
}

/** Split a path such as value.user.id, headers["x"] or value.items[0] into its steps; null if it is none. */
export function steps(path) {
  const found = [];
  const step = /\.?([A-Za-z_$][\w$-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]/y;
  let at = 0;
  while (at < path.length) {
    step.lastIndex = at;
    const match = step.exec(path);
    if (!match) return null;
    found.push(match[1] ?? match[3] ?? Number(match[2]));
    at = step.lastIndex;
  }
  return found.length ? found : null;
}

/** Return the text of the part of a JSON text that a path leads to; null if there is none. */
export function at(text, path) {
  const found = find(tokens(text), path, 0);
  return typeof found === "string" ? found : null;
}

// Reads exactly one value. Returns its text if `path` ends here, what was found below it, or undefined.
function find(stream, path, depth, first = stream.next().value) {
  if (!first || depth > DEPTH_MAX) return undefined;
  const [kind, token] = first;
  if (kind !== "{" && kind !== "[") return path.length ? undefined : shownString(kind, token);
  let all = token;
  let found;
  let index = 0;
  for (let next = stream.next().value; next; next = stream.next().value) {
    if (next[0] === "}" || next[0] === "]") return path.length ? found : all + next[1];
    if (next[0] === ",") {
      all += ", ";
      continue;
    }
    let name = index;
    if (kind === "{") {
      name = shownString(next[0], next[1]);
      all += `${next[1]}: `;
      stream.next();
      next = stream.next().value;
      if (!next) break;
    }
    const isWanted = path.length > 0 && (path[0] === NOWHERE ? false : String(path[0]) === String(name));
    const inner = find(stream, isWanted ? path.slice(1) : path.length ? [NOWHERE] : [], depth + 1, next);
    if (isWanted && inner !== undefined) found = inner;
    if (!path.length && inner !== undefined) all += inner;
    index += 1;
  }
  return path.length ? found : `${all} …`;
}

// A step that no name equals: a value is passed over, but not kept.
const NOWHERE = Symbol("nowhere");

function shownString(kind, token) {
  if (kind !== "string") return token;
  try {
    return JSON.parse(token);
  } catch {
    return token.slice(1);
  }
}

/** Break hexadecimal text into lines of 16 bytes: offset, bytes, and what of them is ASCII. */
export function hexLines(text) {
  const rows = [];
  for (let start = 0; start < text.length; start += 32) {
    const part = text.slice(start, start + 32).match(/../g) ?? [];
    const ascii = part.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : "·";
    });
    rows.push(`${(start / 2).toString(16).padStart(6, "0")}  ${part.join(" ").padEnd(47)}  ${ascii.join("")}`);
  }
  return rows.join("\n");
}
