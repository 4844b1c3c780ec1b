"use strict";
// Keeps the parts of a page fresh: each element with data-source is an address that is fetched again after data-seconds.
// The answer has elements with data-part, which replace the content of those in the page.
(() => {
  const LATE_SECONDS = 10;
  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
  const bar = document.querySelector("[data-live]");
  const sources = [...document.querySelectorAll("[data-source]")].map((element) => ({
    url: element.dataset.source,
    milliseconds: 1000 * element.dataset.seconds,
    due: Date.now() + 1000 * element.dataset.seconds,
    fetched: Date.now(),
    failed: false,
    busy: false,
  }));
  if (!bar || !sources.length) return;
  const [announcement, age] = bar.querySelectorAll("span");
  const button = bar.querySelector("button");
  const words = bar.dataset;
  const shown = new Map();
  let paused = false;
  let signedOut = false;

  const setText = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  // Screen readers get each change of the state, and not each second.
  const show = () => {
    const lost = sources.filter((source) => source.failed);
    const latest = (lost.length ? lost : sources).map((source) => source.fetched);
    const seconds = Math.round((Date.now() - (lost.length ? Math.min(...latest) : Math.max(...latest))) / 1000);
    const state = signedOut ? words.signedOutText : paused ? words.pausedText : lost.length ? words.lostText : words.liveText;
    const text = signedOut || paused ? state : lost.length ? words.lostAgeText : words.ageText;
    setText(announcement, state);
    setText(age, text.replace("0", seconds)); // the texts have a 0 in place of the seconds
    setText(button, paused ? words.continueText : words.pauseText);
    bar.classList.toggle("lost", signedOut || (lost.length > 0 && !paused));
  };

  // A way to find an element again in new content: its id, its address, or its place in the next element with an id.
  const locate = (element) => {
    if (element.id) return (part) => part.querySelector(`#${CSS.escape(element.id)}`);
    const href = element.getAttribute("href");
    if (href) return (part) => part.querySelector(`a[href="${CSS.escape(href)}"]`);
    const holder = element.parentElement.closest("[id]");
    if (!holder) return () => null;
    const place = [...holder.querySelectorAll(FOCUSABLE)].indexOf(element);
    return (part) => part.querySelector(`#${CSS.escape(holder.id)}`)?.querySelectorAll(FOCUSABLE)[place];
  };

  const isInUse = (part, focused) => {
    if (focused?.matches("input, textarea, select")) return true;
    const selection = document.getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  // Replaces a part, and keeps open details, scroll positions and the focus. A part with text being typed or selected
  // stays, and so does one that has not changed: screen readers would announce its alerts again.
  const replace = (part, fresh) => {
    const text = fresh.innerHTML.replace(/(name="csrfmiddlewaretoken" value=")[^"]*/g, "$1");
    const name = part.dataset.part;
    if (shown.get(name) === text) return;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    if (isInUse(part, focused)) return;
    const find = focused && focused !== part ? locate(focused) : null;
    const folds = [...part.querySelectorAll("details[id]")].map((element) => [element.id, element.open]);
    const scrolls = [...part.querySelectorAll(".room-scroll[id]")].map(({ id, scrollLeft, scrollTop }) => [id, scrollLeft, scrollTop]);
    shown.set(name, text);
    part.replaceChildren(...fresh.childNodes);
    for (const [id, open] of folds) document.getElementById(id)?.toggleAttribute("open", open);
    for (const [id, left, top] of scrolls) document.getElementById(id)?.scrollTo(left, top);
    if (!find) return;
    part.tabIndex = -1;
    (find(part) ?? part).focus({ preventScroll: true });
  };

  const load = async (source) => {
    source.busy = true;
    try {
      const signal = AbortSignal.timeout(LATE_SECONDS * 1000);
      const response = await fetch(source.url, { credentials: "same-origin", signal });
      signedOut = response.redirected || response.status === 403;
      if (!response.ok || signedOut) throw new Error(String(response.status));
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      source.fetched = Date.now();
      source.failed = false;
      if (!paused) {
        for (const element of fresh.querySelectorAll("[data-part]")) {
          const part = document.querySelector(`[data-part="${element.dataset.part}"]`);
          if (part) replace(part, element);
        }
      }
    } catch {
      source.failed = true;
    }
    source.busy = false;
    source.due = Date.now() + source.milliseconds;
    show();
  };

  const tick = () => {
    if (document.hidden) return;
    if (!paused && !signedOut) sources.filter((source) => !source.busy && Date.now() >= source.due).forEach(load);
    show();
  };

  button.addEventListener("click", () => {
    paused = !paused;
    if (!paused) sources.forEach((source) => { source.due = 0; });
    tick();
  });
  document.addEventListener("visibilitychange", tick);
  bar.hidden = false;
  show();
  setInterval(tick, 500);
})();
