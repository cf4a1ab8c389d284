"use strict";
(() => {
  // Everything that comes from a table is put in as text, never as markup.
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const RANGES = [["Newest", 0], ["15 min", 9e5], ["1 h", 36e5], ["6 h", 216e5], ["24 h", 864e5], ["7 d", 6048e5], ["All", -1]];
  const PAGE = 40, BAR = 11, ROW = 17, ROWS_MAX = 4;
  const state = {
    table: "", range: 0, since: null, until: null, follow: true, skip: 0, filter: "", chosen: null,
    lanes: null, summary: null, coordinated: null, lock: null, busy: false, again: false, sized: 0, stream: null, heardAt: 0,
  };

  // --- text ---------------------------------------------------------------------------------------------------

  // Controls and marks that turn the direction of reading are shown as codes.
  const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;
  const clean = (text) => String(text).replace(UNSEEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  const number = (n) => (n ?? 0).toLocaleString("en");
  const count = (n, word) => number(n) + " " + word + (n === 1 ? "" : "s");
  const bytes = (n) => {
    let unit = 0;
    for (; n >= 1000 && unit < 4; unit++) n /= 1000;
    return (unit ? n.toFixed(1) : n) + " " + ["B", "kB", "MB", "GB", "TB"][unit];
  };
  const seconds = (s) => {
    if (s === null || s === undefined) return "–";
    if (s < 1) return Math.round(Math.max(s, 0) * 1000) + " ms";
    if (s < 90) return (s < 10 ? s.toFixed(1) : Math.round(s)) + " s";
    if (s < 5400) return Math.round(s / 60) + " min";
    return s < 172800 ? (s / 3600).toFixed(1) + " h" : Math.round(s / 86400) + " days";
  };
  const two = (n) => String(n).padStart(2, "0");
  const clock = (ms, step) => {
    const d = new Date(ms);
    const time = two(d.getUTCHours()) + ":" + two(d.getUTCMinutes());
    if (step >= 864e5) return d.toISOString().slice(0, 10);
    if (step >= 6e4) return time;
    return time + ":" + two(d.getUTCSeconds()) + (step < 1000 ? "." + String(d.getUTCMilliseconds()).padStart(3, "0") : "");
  };
  const stamp = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 23);
  // An open transaction whose writer has died, or has not been heard for too long, is as good as dead.
  const fate = (span) => span.end_ms === null && span.heard_ms ? "dead" : span.outcome;
  const kind = (outcome) => outcome.replace(" ", "");

  function put(parent, ...children) {
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined) parent.append(child instanceof Node ? child : clean(child));
    }
    return parent;
  }
  function el(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "click") made.addEventListener("click", value);
      else if (value !== null && value !== false) made.setAttribute(key, value);
    }
    return put(made, ...children);
  }
  function draw(name, attributes, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    return put(made, ...children);
  }
  function fill(place, ...children) {
    const top = place.scrollTop;
    place.replaceChildren();
    put(place, ...children);
    place.scrollTop = top;
  }
  function table(caption, columns, rows, nothing) {
    if (!rows.length) return el("p", { class: "quiet" }, nothing);
    const numeric = columns.map((c) => c.endsWith("#"));
    const head = el("tr", {}, columns.map((c, i) => el("th", { scope: "col", class: numeric[i] ? "n" : null }, c.replace("#", ""))));
    // In a narrow card each row is a paragraph, with the name of its column before each cell; the style needs their number.
    return el("table", { class: "c" + columns.length }, caption ? el("caption", {}, caption) : null, el("thead", {}, head),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: numeric[i] ? "n" : null, "data-of": columns[i].replace("#", "") }, cell ?? "–"))))));
  }
  const link = (instant) => el("button", { type: "button", class: "link", click: () => explain(instant) }, instant);
  const mark = (outcome) => el("span", { class: "state" }, glyphOf(outcome, 14), " ", outcome);

  // --- asking -------------------------------------------------------------------------------------------------

  async function ask(path) {
    const answer = await fetch("/api/v1/tables" + path, { headers: { accept: "application/json" } });
    const value = await answer.json();
    if (answer.status === 401) throw new Error("This browser may not look any more: open the server's link with its token again.");
    if (!answer.ok) throw new Error(value.error ? value.error.message : "the server answered " + answer.status);
    return value;
  }
  const at = (path) => "/" + encodeURIComponent(state.table) + path;

  function trouble(text) {
    $("trouble").hidden = !text;
    $("trouble").textContent = clean(text || "");
  }

  async function refresh() {
    if (state.busy) { state.again = true; return; }
    state.busy = true;
    const name = state.table;
    try {
      const query = new URLSearchParams({ lanes: PAGE, skip: state.skip });
      if (state.filter) query.set("writer", state.filter);
      const span = RANGES[state.range][1];
      if (!state.follow) { query.set("since_ms", Math.round(state.since)); query.set("until_ms", Math.round(state.until)); }
      else if (span) query.set("since_ms", span < 0 ? 0 : Math.max(Date.now() - span, 0));
      // One answer, so that numbers, lanes and tables tell of the same moment.
      const { summary, lock, lanes, open, services, newest } = await ask(at("/state?" + query));
      if (name !== state.table) return;
      const first = !state.lanes;
      Object.assign(state, { lanes, lock, summary, heardAt: Date.now() });
      showTiles(); showLock(); showCoordinator(); showConflicts(); showLanes(); showOpen(open); showServices(services); showNewest(newest);
      if (first) performance.mark("first-picture");
      if (Date.now() - state.sized > 30000) { state.sized = Date.now(); showSizes(await ask(at("/sizes"))); }
      trouble(state.summary.error ? "The last look at the table failed: " + state.summary.error : state.summary.ready ? "" : "The log is being read; the picture grows.");
    } catch (error) {
      if (name === state.table) trouble(error.message);
    } finally {
      state.busy = false;
      if (state.again) { state.again = false; setTimeout(refresh, 200); }
    }
  }

  function listen() {
    if (state.stream) state.stream.close();
    const stream = state.stream = new EventSource("/api/v1/tables" + at("/events"));
    const say = (text, on) => { $("live").textContent = text; $("live").className = "pill " + (on ? "on" : "off"); };
    // First of all, since a change before it is told by no event.
    stream.addEventListener("open", () => { say("live", true); refresh(); });
    stream.addEventListener("change", () => { say("live", true); refresh(); });
    stream.addEventListener("stopping", () => say("the server stopped", false));
    stream.addEventListener("error", () => { say("not live; trying again", false); if (!state.lanes) refresh(); });
  }

  // --- numbers ------------------------------------------------------------------------------------------------

  function showTiles() {
    const s = state.summary, o = s.outcomes, last = s.last_commit, holder = state.lock.holder;
    const landed = (o.landed || 0) + (o.merged || 0), lost = o.lost || 0;
    const since = (Date.now() - state.heardAt) / 1000;
    const tile = (name, value, more) => el("div", { class: "tile" }, el("small", {}, name), el("b", {}, value), el("small", {}, more));
    fill($("tiles"),
      tile("Last commit", last ? seconds(last.age_s + since) + " ago" : "none yet", last ? last.operation.toLowerCase() + " by " + last.writer : ""),
      tile("Landed", number(landed), (o.merged ? number(o.merged) + " merged again, " : "") + count(s.writers, "writer")),
      tile("Lost", number(lost), (landed + lost ? (100 * lost / (landed + lost)).toFixed(1) + " %, " : "") + seconds(s.wasted_s) + " wasted"),
      tile("Open now", number(s.open), (s.gone ? number(s.gone) + " dead or silent, " : "") + (s.planned ? number(s.planned) + " planned" : "no plans wait")),
      tile("Lock", holder ? "held " + seconds(holder.held_s + since) : "free",
        holder ? "by " + (holder.writer || holder.reason || holder.owner) + (state.lock.queue.length ? "; " + state.lock.queue.length + " wait" : "") : state.lock.lock));
    $("where").textContent = clean(s.url);
  }
  function showLock() {
    const { holder, queue, lock, last_token } = state.lock;
    const rows = holder ? [["holds it", holder.writer || holder.owner, holder.reason, seconds(holder.held_s), holder.host + (holder.pid ? ", process " + holder.pid : "")]] : [];
    queue.forEach((each, n) => rows.push([n + 1 + ". in line", each.owner, "", seconds(each.waits_s), ""]));
    fill($("lock"), table(lock + "; last token " + last_token, ["Place", "Who", "Why", "For#", "Where"], rows, "Nobody holds it (" + lock + ", last token " + last_token + ")."));
  }
  function showCoordinator() {
    const now = state.summary.coordinator, before = state.coordinated;
    $("coordinator-card").hidden = !now;
    if (!now) return;
    // Rates are those of the last stretch of at least two seconds.
    if (!before || state.heardAt - before.at > 2000 || now.begun < before.begun) {
      const s = before && now.begun >= before.begun ? (state.heardAt - before.at) / 1000 : 0;
      const rate = (name) => s ? (now[name] - before[name]) / s : 0;
      state.coordinated = { ...now, at: state.heardAt, rates: { begun: rate("begun"), committed: rate("committed"), left_out: rate("left_out") } };
    }
    const rates = state.coordinated.rates;
    const row = (what, name, entries) => [what, number(now[name]), rates[name].toFixed(1), entries ? (now[name] / entries).toFixed(1) : null];
    fill($("coordinator"),
      table("", ["Answers", "All#", "A second#", "In one entry#"], [row("begun", "begun", now.begin_entries), row("committed", "committed", now.commit_entries), row("left to their writers", "left_out", 0)]),
      el("p", { class: "quiet" }, count(now.waiting, "question") + " waiting, " + count(now.unpublished, "commit") + " not on the timeline yet"));
  }
  function showConflicts() {
    const found = Object.entries(state.summary.conflicts).sort((a, b) => b[1] - a[1]);
    const all = found.reduce((sum, each) => sum + each[1], 0);
    fill($("conflicts"), table("", ["Rule that decided", "Lost#", "Share#"], found.map(([why, n]) => [why, number(n), (100 * n / all).toFixed(0) + " %"]), "No transaction has lost, as far as the log tells."));
  }
  function showOpen(open) {
    fill($("open"), table("", ["Transaction", "Writer", "State", "Open#", "Beat#", "Markers#", "Reserved, waits for"], open.map((each) => [
      link(each.instant), each.operation.toLowerCase() + " by " + each.writer, each.state, seconds(each.age_s), seconds(each.beat_s), number(each.markers),
      [each.reserved ? "reserved " + each.reserved : "", each.behind.length ? " behind " + each.behind.join(", ") : ""]]), "No transaction is open."));
  }
  function showServices({ plans, readers }) {
    fill($("services"), table("", ["Plan", "Action", "By", "Files#", "Waits#"], plans.map((p) => [link(p.instant), p.action, p.writer, number(p.files), seconds(p.age_s)]), "No plan waits."),
      readers.length ? table("Readers keep these states", ["Reader", "Writer", "At"], readers.map((r) => [r.reader, r.writer, r.at]), "") : null);
  }
  function showSizes(s) {
    fill($("sizes"), table(count(s.partitions, "partition") + ", " + count(s.file_groups, "file group") + ", " + count(s.log_files, "log file") + ", " + bytes(s.bytes),
      ["Partition", "File groups#", "Log files#", "Bytes#"], s.largest.slice(0, 50).map((p) => [p.partition || "(root)", number(p.file_groups), number(p.log_files), bytes(p.bytes)]), "The table is empty."),
      table("Timeline", ["Part", "What#"], [["active: completed instants", number(s.timeline.active)], ["archive: files", number(s.timeline.archived_files)],
        ["archive: bytes", bytes(s.timeline.archived_bytes)]], ""));
  }
  function showNewest(instants) {
    fill($("newest"), table("", ["Transaction", "What", "Outcome", "Took#", "Lost against, why"], instants.map((each) => [
      link(each.instant), each.operation.toLowerCase() + " by " + each.writer + (each.attempt > 1 ? ", attempt " + each.attempt : "") + (each.partners.length ? "; one transaction: " + each.partners.join(", ") : ""), mark(fate(each)),
      each.end_ms === null ? "–" : (each.exact ? "" : "≥ ") + seconds((each.end_ms - each.begin_ms) / 1000),
      [each.winner ? link(each.winner) : null, each.winner ? " " : null, each.reason]]), "Nothing has happened to this table yet."));
  }

  // --- the picture --------------------------------------------------------------------------------------------

  function glyph(outcome, x, y, r) {
    const c = "glyph " + kind(outcome);
    switch (outcome) {
      case "landed": return draw("circle", { class: c, cx: x, cy: y, r });
      case "merged": return draw("path", { class: c, d: `M${x - r - 1},${y}l${r + 1},${-r - 1}l${r + 1},${r + 1}l${-r - 1},${r + 1}z` });
      case "lost": return draw("path", { class: c, d: `M${x - r},${y - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}` });
      case "open": case "planned": return draw("path", { class: c, d: `M${x - r},${y - r}l${2 * r},${r}l${-2 * r},${r}z` });
      case "dead": return draw("path", { class: c, d: `M${x},${y - r - 1}v${2 * r + 2}M${x - r},${y - r / 3}h${2 * r}` });
      case "waited": return draw("path", { class: c, d: `M${x - r},${y - r}h${2 * r}l${-2 * r},${2 * r}h${2 * r}z` });
      default: return draw("rect", { class: c, x: x - r, y: y - r, width: 2 * r, height: 2 * r });
    }
  }
  const glyphOf = (outcome, size) => draw("svg", { viewBox: "0 0 14 14", width: size, height: size, class: "mark", "aria-hidden": "true" }, glyph(outcome, 7, 7, 4));

  function steps(since, until, most) {
    const sizes = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 31536e6];
    const step = sizes.find((s) => (until - since) / s <= most) || sizes[sizes.length - 1] * 10;
    const found = [];
    for (let t = Math.ceil(since / step) * step; t <= until; t += step) found.push(t);
    return { step, found };
  }

  const pen = document.createElement("canvas").getContext("2d");
  const drawnWidth = (text) => { pen.font = "12px " + getComputedStyle(document.body).fontFamily; return pen.measureText(text).width; };
  const nameOf = (lane) => clean(lane.writer) || "(no name)";
  function fitting(name, width) {
    if (drawnWidth(name) <= width) return name;
    const letters = [...name];
    while (letters.length && drawnWidth(letters.join("") + "…") > width) letters.pop();
    return letters.join("") + "…";
  }

  function frame() {
    const width = Math.max($("lanes").clientWidth, 280), narrow = width < 640;
    const longest = Math.max(...state.lanes.lanes.map((lane) => drawnWidth(nameOf(lane))), 0);
    const left = narrow ? 4 : Math.min(Math.max(longest + 14, 130), width * .32), right = 10;
    const { since_ms: since, until_ms: until } = state.lanes;
    const x = (ms) => left + (ms - since) / (until - since) * (width - left - right);
    return { width, narrow, left, right, since, until, x, time: (px) => since + (px - left) / (width - left - right) * (until - since) };
  }

  function showLanes() {
    if (!state.lanes) return;
    const f = frame(), seen = state.lanes;
    showOverview(f);
    const places = new Map();
    const layer = { stripes: draw("g", {}), bars: draw("g", {}), arrows: draw("g", {}), names: draw("g", {}) };
    let y = 20;
    const ticks = steps(f.since, f.until, Math.max(f.width / (f.narrow ? 85 : 110), 2));
    state.order = [];
    seen.lanes.forEach((lane, n) => {
      const head = f.narrow ? 16 : 0, packed = lane.spans ? pack(lane.spans, f) : null;
      const height = head + (packed ? packed.rows : 1) * ROW + 8;
      if (n % 2 === 0) layer.stripes.append(draw("rect", { class: "stripe", x: 0, y, width: f.width, height }));
      const name = nameOf(lane);
      layer.names.append(draw("text", { class: "name", x: f.narrow ? 6 : 4, y: y + (f.narrow ? 13 : Math.min(height / 2 + 4, 17)) },
        draw("title", {}, name), fitting(name, f.narrow ? f.width - 12 : f.left - 12)));
      if (packed) drawSpans(lane, packed, f, y + head + 4, layer.bars, places);
      else drawBins(lane, f, y + head + 2, ROW, layer.bars);
      y += height;
    });
    for (const each of seen.arrows) {
      const from = places.get(each.loser), to = places.get(each.winner);
      if (!from || !to) continue;
      const bend = Math.min(Math.max(12, Math.abs(to.y - from.y) * .15), 36);
      layer.arrows.append(draw("path", { class: "arrow", "data-of": each.loser + " " + each.winner, d: `M${from.end},${from.y}C${from.end + bend},${from.y} ${to.end + bend},${to.y} ${to.end + 6},${to.y}` }),
        draw("path", { class: "tipof", d: `M${to.end + 4},${to.y}l7,-3.5l0,7z` }));
    }
    const label = `${seen.lanes.length} writers from ${stamp(f.since)} to ${stamp(f.until)} UTC, ${number(seen.total)} transactions. Arrow keys choose one, Enter tells why, plus and minus zoom. The same stands in the table below.`;
    const svg = draw("svg", { id: "picture", viewBox: `0 0 ${f.width} ${y + 4}`, height: y + 4, tabindex: 0, role: "img", "aria-label": label },
      layer.stripes, axis(ticks, f, y), layer.bars, layer.arrows, layer.names);
    const focused = document.activeElement && document.activeElement.id === "picture";
    fill($("lanes"), seen.lanes.length ? svg : el("p", { class: "quiet" }, state.filter ? "No such writer was at work in this stretch of time." : "Nobody was at work in this stretch of time."));
    wire(svg, f);
    if (focused) svg.focus({ preventScroll: true });
    choose(state.chosen, true);
    for (const button of $("ranges").children) button.setAttribute("aria-pressed", String(state.follow && button.dataset.n === String(state.range)));
    const last = seen.skip + seen.lanes.length;
    $("page").parentElement.hidden = seen.lanes_total <= seen.lanes.length && !seen.skip;
    $("page").textContent = seen.lanes.length ? `${number(seen.skip + 1)} to ${number(last)} of ${number(seen.lanes_total)} writers` : "";
    $("less").disabled = !seen.skip; $("more").disabled = last >= seen.lanes_total;
    const hidden = seen.arrows_total - seen.arrows.length;
    hint(`${number(seen.total)} transactions, times are UTC` + (hidden > 0 ? `; ${number(hidden)} older arrows are left out` : "") + (state.follow ? "" : "; not following: choose a stretch to follow again"));
    if ($("lanes-table").parentElement.open) lanesTable();
    if ($("overview-table").parentElement.open) overviewTable();
  }

  function axis(ticks, f, bottom) {
    const made = draw("g", {});
    for (const t of ticks.found) {
      const x = f.x(t);
      made.append(draw("line", { class: "grid", x1: x, x2: x, y1: 16, y2: bottom }));
      if (x > f.left + 20 && x < f.width - 24) made.append(draw("text", { x, y: 12, "text-anchor": "middle" }, clock(t, ticks.step)));
    }
    return made;
  }

  // Of what goes on at once each gets a row of its own, as far as there are rows.
  function pack(spans, f) {
    const ends = [], rows = [];
    for (const span of [...spans].sort((a, b) => a.begin_ms - b.begin_ms)) {
      const from = Math.max(f.x(span.begin_ms), f.left), to = Math.max(Math.min(f.x(span.end_ms ?? span.heard_ms ?? state.lanes.now_ms), f.width - f.right), from + 3);
      let row = ends.findIndex((end) => end + 1 < from);
      if (row < 0) row = ends.length < ROWS_MAX ? ends.length : ends.indexOf(Math.min(...ends));
      ends[row] = Math.max(to, ends[row] ?? 0);
      rows.push({ span, row, from, to });
    }
    return { rows: Math.max(ends.length, 1), items: rows };
  }

  function drawSpans(lane, packed, f, top, into, places) {
    for (const [since, until] of lane.waits) {
      const a = Math.max(f.x(since), f.left), b = Math.min(f.x(until), f.width - f.right);
      if (b > a) into.append(draw("line", { class: "wait", x1: a, x2: b, y1: top + BAR / 2, y2: top + BAR / 2 }, draw("title", {}, "waited " + seconds((until - since) / 1000) + " for the next attempt")));
    }
    const row = [];
    for (const { span, row: n, from, to } of packed.items) {
      const y = top + n * ROW, outcome = fate(span), name = kind(outcome) + (span.service ? " service" : "");
      const made = draw("g", { class: "span", id: "s" + span.instant },
        draw("rect", { class: "body " + name, x: from, y: span.service ? y + 3 : y, width: Math.max(to - from, 2), height: span.service ? BAR - 6 : BAR, rx: 2 }),
        glyph(outcome, Math.min(to, f.width - f.right), y + BAR / 2, 4),
        span.partners.length ? draw("rect", { class: "partners", x: from, y: y - 3, width: Math.max(to - from, 6), height: 2 }) : null);
      made.span = span;
      into.append(made);
      places.set(span.instant, { end: to, y: y + BAR / 2, x: from });
      row.push(span.instant);
    }
    for (const [since, until] of lane.holds) {
      const a = Math.max(f.x(since), f.left);
      into.append(draw("rect", { class: "hold", x: a, y: top + BAR + 1, width: Math.max(Math.min(f.x(until), f.width - f.right) - a, 2), height: 3 }, draw("title", {}, "held the lock for " + seconds((until - since) / 1000))));
    }
    if (row.length) state.order.push(row);
  }

  function columns(bins, f, bottom, height, most, into) {
    const wide = Math.max((f.width - f.left - f.right) / state.lanes.overview.length, 1);
    for (const [place, good, bad, other] of bins) {
      const x = f.left + place * wide;
      let y = bottom;
      for (const [count, name] of [[good, "landed"], [other, "open"], [bad, "lost"]]) {
        if (!count) continue;
        const h = Math.max(count / most * height, 1.5);
        y -= h;
        into.append(draw("rect", { class: name, x, y, width: Math.max(wide - .6, .8), height: h }));
      }
    }
  }
  function drawBins(lane, f, top, height, into) {
    const most = Math.max(...lane.bins.map(([, a, b, c]) => a + b + c), 1);
    columns(lane.bins, f, top + height, height, most, into);
  }

  function showOverview(f) {
    const bins = state.lanes.overview.map((bin, n) => [n, ...bin]);
    const most = Math.max(...bins.map(([, a, b, c]) => a + b + c), 1), high = 42;
    const svg = draw("svg", { viewBox: `0 0 ${f.width} ${high + 4}`, height: high + 4, role: "img", "aria-label": "What ended when: landed below, lost above; the table below has the numbers" });
    svg.append(draw("line", { class: "grid", x1: f.left, x2: f.width - f.right, y1: high + 1, y2: high + 1 }));
    if (!f.narrow) svg.append(draw("text", { x: 4, y: 14 }, "ended, all writers"), draw("text", { x: 4, y: 28 }, "at most " + number(most) + " at once"));
    columns(bins, f, high, high - 4, most, svg);
    fill($("overview"), svg);
    brush(svg, f, high + 4);
  }

  function lanesTable() {
    fill($("lanes-table"), table("", ["Writer", "Landed#", "Merged again#", "Lost#", "Waited#", "Aborted, rolled back#", "Open#"], state.lanes.lanes.map(({ writer, counts: c }) => [
      writer, number(c.landed), number(c.merged), number(c.lost), number(c.waited), number((c.aborted || 0) + (c["rolled back"] || 0) + (c["taken back"] || 0)), number((c.open || 0) + (c.planned || 0))]), "Nobody was at work."));
  }
  function overviewTable() {
    const { since_ms, step_ms, overview } = state.lanes;
    const rows = overview.map((bin, n) => [n, bin]).filter(([, bin]) => bin.some(Boolean));
    fill($("overview-table"), table(`In steps of ${seconds(step_ms / 1000)}`, ["From (UTC)", "Landed#", "Lost, aborted, rolled back#", "Open, waited#"], rows.map(([n, [a, b, c]]) => [stamp(since_ms + n * step_ms), number(a), number(b), number(c)]), "Nothing ended."));
  }

  // --- moving about -------------------------------------------------------------------------------------------

  const hint = (text) => { $("hint").textContent = clean(text); };

  function look(since, until) {
    const now = Date.now();
    if (!(until - since >= 20)) { const middle = (since + until) / 2; since = middle - 10; until = middle + 10; }
    Object.assign(state, { since: Math.max(since, 0), until: Math.min(until, now + 864e5), follow: false });
    refresh();
  }
  function zoom(factor, middle) {
    if (!state.lanes) return;
    const { since_ms: a, until_ms: b } = state.lanes, m = middle ?? (a + b) / 2;
    look(m - (m - a) * factor, m + (b - m) * factor);
  }
  function pan(part) {
    if (!state.lanes) return;
    const { since_ms: a, until_ms: b } = state.lanes;
    look(a + (b - a) * part, b + (b - a) * part);
  }

  // Drag across a picture to see that stretch; double-click to see twice as much.
  function brush(svg, f, height) {
    let from = null, shade = null;
    const place = (event) => { const box = svg.getBoundingClientRect(); return (event.clientX - box.left) / box.width * f.width; };
    svg.addEventListener("pointerdown", (event) => { if (event.button === 0 && event.pointerType !== "touch") from = place(event); });
    svg.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const to = place(event);
      if (Math.abs(to - from) < 6) return;
      if (!shade) { shade = draw("rect", { class: "brush", y: 0, height }); svg.append(shade); svg.setPointerCapture(event.pointerId); }
      shade.setAttribute("x", Math.min(from, to)); shade.setAttribute("width", Math.abs(to - from));
    });
    svg.addEventListener("pointerup", (event) => {
      const drawn = shade !== null, a = from, b = place(event);
      if (shade) shade.remove();
      from = shade = null;
      if (drawn) { svg.dragged = true; look(f.time(Math.min(a, b)), f.time(Math.max(a, b))); }
    });
    svg.addEventListener("dblclick", (event) => zoom(2, f.time(place(event))));
  }

  function wire(svg, f) {
    brush(svg, f, svg.viewBox.baseVal.height);
    const of = (event) => { const g = event.target.closest(".span"); return g ? g.span : null; };
    svg.addEventListener("click", (event) => {
      if (svg.dragged) { svg.dragged = false; return; }
      const span = of(event);
      if (span) { choose(span.instant); explain(span.instant, span); }
    });
    svg.addEventListener("pointermove", (event) => {
      const span = of(event), tip = $("tip");
      tip.hidden = !span;
      if (!span) return;
      tip.textContent = clean(words(span));
      tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)) + "px";
      tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16) + "px";
    });
    svg.addEventListener("pointerleave", () => { $("tip").hidden = true; });
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (move) step(...move);
      else if (event.key === "Enter" && state.chosen) explain(state.chosen);
      else if (event.key === "+") zoom(.5);
      else if (event.key === "-") zoom(2);
      else return;
      event.preventDefault();
    });
  }
  function step(lanes, along) {
    const order = state.order || [];
    if (!order.length) return;
    let lane = order.findIndex((row) => row.includes(state.chosen));
    if (lane < 0) { choose(order[0][order[0].length - 1]); return; }
    const here = order[lane].indexOf(state.chosen);
    if (along) { choose(order[lane][Math.min(Math.max(here + along, 0), order[lane].length - 1)]); return; }
    lane = Math.min(Math.max(lane + lanes, 0), order.length - 1);
    const began = (id) => document.getElementById("s" + id).span.begin_ms, now = began(state.chosen);
    choose(order[lane].reduce((best, id) => (Math.abs(began(id) - now) < Math.abs(began(best) - now) ? id : best)));
  }
  function choose(instant, quiet) {
    for (const each of document.querySelectorAll("#picture .chosen")) each.classList.remove("chosen");
    for (const each of document.querySelectorAll("#picture .arrow")) each.classList.toggle("chosen", each.dataset.of.split(" ").includes(instant));
    const found = instant && document.getElementById("s" + instant);
    if (!found) return;
    state.chosen = instant;
    found.classList.add("chosen");
    const picture = $("picture");
    if (picture) picture.setAttribute("aria-label", words(found.span));
    if (!quiet) { hint(words(found.span)); found.scrollIntoView({ block: "nearest" }); }
  }
  function words(span) {
    const took = span.heard_ms ? ", not rolled back yet" : span.end_ms === null ? ", open" : ", took " + (span.exact ? "" : "at least ") + seconds((span.end_ms - span.begin_ms) / 1000);
    return `${span.instant} ${span.operation.toLowerCase()} by ${span.writer}: ${fate(span)}${took}`
      + (span.attempt > 1 ? `, attempt ${span.attempt}` : "") + (span.winner ? `, lost against ${span.winner}` : "") + (span.reason ? `: ${span.reason}` : "")
      + (span.partners.length ? `; one transaction: ${span.partners.join(", ")}` : "");
  }

  // --- why ----------------------------------------------------------------------------------------------------

  async function explain(instant, span) {
    $("why-title").textContent = instant;
    fill($("why-body"), el("p", { class: "quiet" }, "asking …"));
    $("tip").hidden = true;
    if (!$("why").open) $("why").showModal();
    let shown;
    try {
      shown = story(await ask(at("/why/" + encodeURIComponent(instant))));
    } catch (error) {
      shown = [el("p", {}, error.message), span ? el("p", { class: "quiet" }, words(span)) : null];
    }
    if ($("why-title").textContent === instant) fill($("why-body"), ...shown);
  }
  function story(a) {
    const some = (items, how = (x) => x) => items && items.length ? el("ul", {}, items.slice(0, 20).map((x) => el("li", {}, how(x))), items.length > 20 ? el("li", {}, `and ${number(items.length - 20)} more`) : null) : null;
    const who = (o) => [link(o.instant), " ", o.operation.toLowerCase(), o.writer ? " by " + o.writer : ""];
    const rows = (o) => o.rows_min === null ? "" : `: both changed ${o.rows_min === o.rows_max ? "" : number(o.rows_min) + " to "}${number(o.rows_max)} rows`;
    const cost = [a.took_s === null ? null : seconds(a.took_s), a.files === null ? null : number(a.files) + " files", a.rows === null ? null : number(a.rows) + " rows", a.bytes === null ? null : bytes(a.bytes)].filter((x) => x !== null);
    const pairs = [
      ["outcome", [mark(a.outcome), a.completion ? " at " + a.completion : ""]],
      ["what", a.operation.toLowerCase() + (a.writer ? " by " + a.writer : "")],
      ["cost", cost.length ? cost.join(", ") + (a.outcome === "lost" ? ", all in vain" : "") : null],
      ["winner", a.winner ? [...who(a.winner), a.winner.completion ? ", landed at " + a.winner.completion : ", was still open"] : null],
      ["because", a.rule ? a.rule + (a.outcome === "rolled back" ? ", by " + a.ended_by : "") : null],
      ["overlap", some(a.overlap, (o) => o.group + rows(o))],
      ["wrote", some(a.wrote)], ["read", some(a.read)],
      ["rounds", a.rounds ? `it had merged again ${a.rounds} times before` : null],
      ["merged onto", some(a.merged_over, who)],
      ["both land", some(a.ways.filter((w) => w.lands === "both"), (w) => "if you " + w.how)],
      ["it lands", some(a.ways.filter((w) => w.lands === "ours"), (w) => "if you " + w.how)],
      ["attempts before", some(a.attempts, (t) => [link(t.instant), ": ", t.outcome, t.rule ? ", " + t.rule : ""])],
      ["note", some(a.notes)],
    ];
    return [el("dl", {}, pairs.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))];
  }

  // --- beginning ----------------------------------------------------------------------------------------------

  function showLegend() {
    const shape = (outcome) => draw("svg", { viewBox: "0 0 30 14", "aria-hidden": "true" }, draw("rect", { class: "body " + kind(outcome), x: 1, y: 2, width: 21, height: 10, rx: 2 }), glyph(outcome, 23, 7, 4));
    const line = (made) => draw("svg", { viewBox: "0 0 30 14", "aria-hidden": "true" }, made);
    const items = [["open", "working"], ["landed", "landed"], ["merged", "merged again, landed"], ["lost", "lost"], ["waited", "yielded, retrying"], ["dead", "dead or silent, not rolled back yet"], ["aborted", "aborted, rolled back, taken back"]].map(([o, text]) => el("li", {}, shape(o), text));
    fill($("legend"), items,
      el("li", {}, line(draw("line", { class: "wait", x1: 2, x2: 28, y1: 7, y2: 7 })), "waiting for the next attempt"),
      el("li", {}, line(draw("rect", { class: "hold", x: 2, y: 6, width: 26, height: 3 })), "holding the lock"),
      el("li", {}, line(draw("path", { class: "arrow", d: "M2,7h22M28,7l-6,-3.5v7z" })), "from loser to winner"));
  }
  function switchTo(name) {
    Object.assign(state, { table: name, lanes: null, skip: 0, chosen: null, sized: 0, follow: true, range: 0 });
    document.title = clean(name) + " · LakeLatch";
    location.hash = encodeURIComponent(name);
    listen();
  }
  async function begin() {
    const root = document.documentElement;
    let theme = null;
    try { theme = localStorage.getItem("theme"); } catch { /* a browser may forbid it */ }
    if (theme) root.dataset.theme = theme;
    $("theme").addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it is forgotten then */ }
    });
    showLegend();
    put($("ranges"), RANGES.map(([name], n) => el("button", { type: "button", "data-n": n, click: () => { Object.assign(state, { range: n, follow: true }); refresh(); } }, name)));
    $("back").addEventListener("click", () => pan(-.5));
    $("forth").addEventListener("click", () => pan(.5));
    $("in").addEventListener("click", () => zoom(.5));
    $("out").addEventListener("click", () => zoom(2));
    $("less").addEventListener("click", () => { state.skip = Math.max(state.skip - PAGE, 0); refresh(); });
    $("more").addEventListener("click", () => { state.skip += PAGE; refresh(); });
    $("why-close").addEventListener("click", () => $("why").close());
    let typing = 0;
    $("filter").addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => { Object.assign(state, { filter: $("filter").value, skip: 0 }); refresh(); }, 200);
    });
    $("lanes-table").parentElement.addEventListener("toggle", () => state.lanes && lanesTable());
    $("overview-table").parentElement.addEventListener("toggle", () => state.lanes && overviewTable());
    let wide = 0;
    new ResizeObserver(() => { if ($("lanes").clientWidth !== wide) { wide = $("lanes").clientWidth; showLanes(); } }).observe($("lanes"));
    setInterval(() => {
      if (!state.lanes || document.hidden) return;
      showTiles();
      if (state.follow && (state.summary.open || state.lock.holder || !state.summary.ready)) refresh();
    }, 1000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && state.table) refresh(); });
    try {
      const { tables } = await ask("");
      put($("table"), tables.map(({ name }) => el("option", { value: name }, name)));
      const wanted = decodeURIComponent(location.hash.slice(1));
      const first = tables.some(({ name }) => name === wanted) ? wanted : tables[0].name;
      $("table").value = first;
      $("table").addEventListener("change", () => switchTo($("table").value));
      switchTo(first);
    } catch (error) {
      trouble(error.message);
    }
  }
  begin();
})();
