
"use strict";
// Draws the picture. All texts come from a cluster: they only ever become text nodes, never HTML.
(() => {
  const picture = JSON.parse(document.getElementById("data").textContent);
  const FIRST = 200; // How many objects of a kind are drawn at once.
  const HITS = 100; // How many results of a search are drawn.
  const OPEN = 120; // Up to how many objects in all are open from the beginning.
  const SMALL = 8; // Of more, only kinds with so few objects are open.
  const by = (id) => document.getElementById(id);
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const button = (name, text) => Object.assign(make("button", name, text), { type: "button" });
  const hasLanes = picture.lanes.some((lane) => lane !== "");
  const severe = (mark) => mark.tone === "warn" || mark.tone === "bad";
  const isSevere = (entry) => entry.item.marks.some(severe);

  // Every object once, with the text that a search looks at.
  const entries = [];
  const folds = [];
  picture.cards.forEach((card, at) => {
    for (const fold of card.folds) {
      const place = { card: at, fold, entries: [], drawn: 0 };
      folds.push(place);
      for (const item of fold.items) {
        const state = picture.legend[item.state] || { sign: "", word: "", tone: "plain" };
        const texts = [fold.kind, item.name, state.word, card.title, ...item.marks.map((mark) => mark.text)];
        const entry = { place, item, state, text: texts.join("\n").toLowerCase() };
        place.entries.push(entry);
        entries.push(entry);
      }
    }
  });
  const off = new Set(); // The states of the legend that are not shown.
  const isOn = (entry) => !off.has(entry.item.state);

  // The head.
  by("title").textContent = picture.title;
  by("facts").textContent = picture.facts.join(" · ");
  picture.legend.forEach((state, at) => {
    const amount = entries.filter((entry) => entry.item.state === at).length;
    if (amount === 0) return;
    const toggle = button(state.tone, `${state.sign} ${state.word} ${amount}`);
    toggle.setAttribute("aria-pressed", "true");
    toggle.onclick = () => {
      if (off.has(at)) off.delete(at);
      else off.add(at);
      toggle.setAttribute("aria-pressed", String(!off.has(at)));
      folds.forEach(redraw);
      search();
    };
    by("legend").append(toggle);
  });
  if (picture.notices.length > 0) {
    const notices = by("notices");
    notices.hidden = false;
    notices.open = picture.notices.length <= 5;
    const amount = picture.notices.length;
    notices.querySelector("summary").textContent = amount === 1 ? "1 note" : `${amount} notes`;
    notices.querySelector("ul").append(...picture.notices.map(line));
  }

  function line(mark) {
    const row = make("li", mark.tone);
    row.append(mark.code ? make("code", "", mark.text) : mark.text);
    return row;
  }

  // The board: a grid with a column for each column, and a row for each lane.
  const board = by("board");
  const lanes = Math.max(picture.lanes.length, 1);
  const first = hasLanes ? 2 : 1;
  board.style.gridTemplateColumns = `${hasLanes ? "max-content " : ""}repeat(${picture.columns.length}, max-content)`;
  const put = (element, column, row) => {
    element.style.gridColumn = column;
    element.style.gridRow = row;
    board.append(element);
  };
  if (hasLanes) put(make("div", "column", ""), 1, 1);
  picture.columns.forEach((column, at) => {
    put(make("div", `column${column.barrier ? " barrier" : at > 0 ? " next" : ""}`, column.title), at + first, 1);
  });
  const cells = new Map();
  for (let lane = 0; lane < lanes; lane++) {
    if (hasLanes) put(make("div", "lane", picture.lanes[lane]), 1, lane + 2);
    picture.columns.forEach((column, at) => {
      const cell = make("div", `cell${column.barrier ? " barrier" : ""}`);
      cells.set(`${lane} ${at}`, cell);
      put(cell, at + first, lane + 2);
    });
  }
  const cards = picture.cards.map((card, at) => {
    const box = make("section", "card");
    if (card.title) box.append(make("h3", "", card.title));
    if (card.facts) box.append(make("p", "facts", card.facts));
    const before = card.after.map((other) => picture.cards[other]).filter((other) => other && other.title);
    if (before.length > 0 && lanes === 1) {
      const names = before.slice(0, 4).map((other) => other.title).join(", ");
      box.append(make("p", "after", `after ${names}${before.length > 4 ? ` and ${before.length - 4} more` : ""}`));
    }
    box.onpointerenter = () => relate(at, true);
    box.onpointerleave = () => relate(at, false);
    const cell = cells.get(`${card.lane} ${card.column}`);
    if (cell) cell.append(box);
    return box;
  });
  const relate = (at, is) => picture.cards[at].after.forEach((other) => cards[other] && cards[other].classList.toggle("related", is));
  const worst = (list) => ["bad", "warn"].find((tone) => list.some((entry) => entry.item.marks.some((mark) => mark.tone === tone)));
  for (const place of folds) {
    const box = make("div", "fold");
    place.head = button("nav", "");
    place.list = make("ul");
    place.list.hidden = true;
    place.head.setAttribute("aria-expanded", "false");
    place.head.onclick = () => open(place, place.list.hidden);
    box.append(place.head, place.list);
    cards[place.card].append(box);
    if (place.fold.kind === "") place.head.hidden = true;
    const tone = worst(place.entries);
    if (tone) cards[place.card].classList.add(`of-${tone}`);
    title(place);
  }

  function title(place, hits) {
    const amount = place.entries.length;
    const name = `${place.fold.kind} ×${hits === undefined ? amount : `${hits} of ${amount}`}`;
    place.head.replaceChildren(name);
    const marked = place.entries.filter(isSevere).length;
    if (marked > 0) place.head.append(make("span", `badge ${worst(place.entries)}`, `! ${marked}`));
  }

  function open(place, is) {
    place.list.hidden = !is;
    place.head.setAttribute("aria-expanded", String(is));
    if (is && place.drawn === 0) draw(place, FIRST);
  }

  function redraw(place) {
    if (place.drawn === 0) return;
    place.list.replaceChildren();
    place.drawn = 0;
    draw(place, FIRST);
  }

  /** Draws the next objects of a kind, and a button for the others. */
  function draw(place, amount) {
    const wanted = place.entries.filter(isOn);
    const next = wanted.slice(place.drawn, place.drawn + amount);
    if (place.list.lastElementChild && place.list.lastElementChild.className === "more") place.list.lastElementChild.remove();
    place.list.append(...next.map(row));
    place.drawn += next.length;
    const left = wanted.length - place.drawn;
    if (left > 0) {
      const more = make("li", "more");
      const show = button("item nav muted", `show ${Math.min(left, 1000)} of ${left} more`);
      show.onclick = () => {
        draw(place, 1000);
        const after = place.list.children[place.drawn - Math.min(left, 1000)];
        if (after) after.firstElementChild.focus();
      };
      more.append(show);
      place.list.append(more);
    }
  }

  function row(entry) {
    const item = make("li");
    entry.button = button(entry.state.tone === "muted" ? "item nav muted" : "item nav", "");
    entry.button.append(make("span", `sign ${entry.state.tone}`, entry.state.sign), entry.item.name);
    entry.button.title = entry.state.word;
    const marked = entry.item.marks.filter(severe);
    if (marked.length > 0) {
      const tone = marked.some((mark) => mark.tone === "bad") ? "bad" : "warn";
      entry.button.append(make("span", `badge ${tone}`, `! ${marked[0].text.slice(0, 160)}${marked[0].text.length > 160 ? "…" : ""}`));
    }
    entry.button.onclick = () => select(entry);
    item.append(entry.button);
    return item;
  }

  // The details of one object.
  let selected;
  function select(entry) {
    if (selected && selected.button) selected.button.removeAttribute("aria-current");
    const closes = selected === entry;
    selected = closes ? undefined : entry;
    const details = by("details");
    details.hidden = closes;
    if (closes) return;
    if (entry.button) entry.button.setAttribute("aria-current", "true");
    const close = button("close", "close");
    close.onclick = () => { select(entry); focus(entry.button); };
    const list = make("ul");
    list.append(...entry.item.marks.map(line));
    const card = picture.cards[entry.place.card];
    const where = [entry.state.word, card.title].filter((text) => text).join(" · ");
    details.replaceChildren(close, make("h2", "", `${entry.place.fold.kind} ${entry.item.name}`), make("p", "facts", where), list);
    details.scrollTop = 0;
  }
  const focus = (element) => element && element.focus();

  /** Shows an object on the board: opens its kind, draws as far as it, and focuses it. */
  function reveal(entry) {
    if (!isOn(entry)) {
      off.delete(entry.item.state);
      folds.forEach(redraw);
    }
    open(entry.place, true);
    while (!(entry.button && entry.button.isConnected)) {
      const before = entry.place.drawn;
      draw(entry.place, 1000);
      if (entry.place.drawn === before) break;
    }
    if (entry.button) {
      entry.button.scrollIntoView({ block: "center", inline: "center" });
      focus(entry.button);
    }
    if (selected !== entry) select(entry);
  }

  // The search. Objects are few enough to look at each; only the first results are drawn.
  const input = by("search");
  const hits = by("hits");
  function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter((word) => word);
    if (words.length === 0) {
      hits.hidden = true;
      hits.replaceChildren();
      by("count").textContent = "";
      cards.forEach((card) => card.classList.remove("no-hit"));
      folds.forEach((place) => title(place));
      input.setAttribute("aria-expanded", "false");
      return;
    }
    const found = entries.filter((entry) => isOn(entry) && words.every((word) => entry.text.includes(word)));
    const perFold = new Map();
    const perCard = new Set();
    for (const entry of found) {
      perFold.set(entry.place, (perFold.get(entry.place) || 0) + 1);
      perCard.add(entry.place.card);
    }
    folds.forEach((place) => title(place, perFold.get(place) || 0));
    cards.forEach((card, at) => card.classList.toggle("no-hit", !perCard.has(at)));
    hits.replaceChildren(...found.slice(0, HITS).map((entry) => {
      const result = make("li");
      const go = button("", "");
      go.append(make("span", `sign ${entry.state.tone}`, entry.state.sign), make("span", "", `${entry.place.fold.kind} ${entry.item.name}`));
      go.append(make("span", "where", picture.cards[entry.place.card].title));
      go.onclick = () => { hits.hidden = true; reveal(entry); };
      result.append(go);
      return result;
    }));
    by("count").textContent = `${found.length} of ${entries.length}`;
    hits.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(found.length > 0));
  }
  input.oninput = search;
  const endSearch = () => { input.value = ""; search(); };

  // The keyboard.
  const reachable = () => [...board.querySelectorAll(".nav")].filter((element) => element.offsetParent !== null);
  function move(key, from) {
    const all = reachable();
    const column = (element) => element.closest(".cell").style.gridColumn.split(" ")[0] | 0;
    if (!from || !from.classList.contains("nav")) return focus(all[0]);
    const own = column(from);
    if (key === "ArrowUp" || key === "ArrowDown") {
      const same = all.filter((element) => column(element) === own);
      return focus(same[same.indexOf(from) + (key === "ArrowDown" ? 1 : -1)]);
    }
    const step = key === "ArrowRight" ? 1 : -1;
    const beside = all.filter((element) => (column(element) - own) * step > 0);
    if (beside.length === 0) return;
    const nearest = Math.min(...beside.map((element) => (column(element) - own) * step));
    const top = from.getBoundingClientRect().top;
    const distance = (element) => Math.abs(element.getBoundingClientRect().top - top);
    const candidates = beside.filter((element) => (column(element) - own) * step === nearest);
    focus(candidates.reduce((best, element) => (distance(element) < distance(best) ? element : best)));
  }
  function nextMarked(step) {
    const marked = entries.filter((entry) => isSevere(entry) && isOn(entry));
    if (marked.length === 0) return;
    const at = marked.indexOf(selected);
    reveal(marked[at < 0 ? (step > 0 ? 0 : marked.length - 1) : (at + step + marked.length) % marked.length]);
  }
  let isExpanded = entries.length <= OPEN;
  function expand(is) {
    isExpanded = is;
    folds.forEach((place) => open(place, is || place.fold.kind === ""));
    by("expand").textContent = is ? "collapse all" : "expand all";
  }
  function theme() {
    const isDark = getComputedStyle(document.documentElement).getPropertyValue("--page").trim() === "#0d1117";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
  }
  function help() {
    by("help").hidden = !by("help").hidden;
    by("keys").setAttribute("aria-expanded", String(!by("help").hidden));
  }
  by("expand").onclick = () => expand(!isExpanded);
  by("theme").onclick = theme;
  by("keys").onclick = help;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = document.activeElement;
    const arrow = event.key.startsWith("Arrow");
    if (hits.contains(at) || at === input) {
      const results = [...hits.querySelectorAll("button")];
      const to = results.indexOf(at) + (event.key === "ArrowDown" ? 1 : -1);
      if (event.key === "Escape") { endSearch(); focus(input); input.blur(); focus(board); }
      else if (event.key === "Enter" && at === input && results.length > 0) results[0].click();
      else if (event.key === "ArrowDown" || (event.key === "ArrowUp" && at !== input)) focus(to < 0 ? input : results[to]);
      else return;
      event.preventDefault();
      return;
    }
    if (event.key === "/") { focus(input); input.select(); }
    else if (arrow) move(event.key, at);
    else if (event.key === "Escape") { if (selected) select(selected); endSearch(); }
    else if (event.key === "n") nextMarked(1);
    else if (event.key === "N") nextMarked(-1);
    else if (event.key === "e") expand(!isExpanded);
    else if (event.key === "t") theme();
    else if (event.key === "?") help();
    else return;
    event.preventDefault();
  });
  expand(isExpanded);
  if (!isExpanded) folds.filter((place) => place.entries.length <= SMALL).slice(0, OPEN).forEach((place) => open(place, true));
})();
