"use strict";
// Keeps the parts of a page fresh: each element with data-fragment-url is fetched again after data-seconds.
(() => {
  const LATE_SECONDS = 10;
  const bar = document.querySelector("[data-live]");
  const parts = [...document.querySelectorAll("[data-fragment-url]")];
  if (!bar || !parts.length) return;
  const status = bar.querySelector("[role=status]");
  const button = bar.querySelector("button");
  let paused = false;
  let lost = false;

  const show = () => {
    const time = document.querySelector("[data-time]")?.dataset.time ?? "";
    const text = paused ? bar.dataset.pausedText : lost ? `${bar.dataset.lostText} ${time}` : bar.dataset.liveText;
    if (status.textContent !== text) status.textContent = text;
    button.textContent = paused ? bar.dataset.continueText : bar.dataset.pauseText;
    bar.classList.toggle("lost", lost && !paused);
  };

  // Replaces a part, and keeps open tables, scroll positions and the focus. A part with text being typed stays.
  const replace = (part, html) => {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    if (focused && focused.matches("input, textarea, select")) return;
    const folds = [...part.querySelectorAll("details[id]")].map((element) => [element.id, element.open]);
    const scrolled = [...part.querySelectorAll(".room-scroll[id]")].map((element) => [element.id, element.scrollLeft]);
    part.innerHTML = html;
    for (const [id, open] of folds) document.getElementById(id)?.toggleAttribute("open", open);
    for (const [id, left] of scrolled) {
      const element = document.getElementById(id);
      if (element) element.scrollLeft = left;
    }
    const again = focused?.id ? document.getElementById(focused.id) : null;
    if (again) again.focus({ preventScroll: true });
  };

  const load = async (part) => {
    try {
      const signal = AbortSignal.timeout(LATE_SECONDS * 1000);
      const response = await fetch(part.dataset.fragmentUrl, { credentials: "same-origin", signal });
      if (!response.ok || response.redirected) throw new Error(String(response.status));
      const html = await response.text();
      if (!paused) replace(part, html);
      part.dataset.failed = "";
    } catch {
      part.dataset.failed = "true";
    }
    lost = parts.some((element) => element.dataset.failed === "true");
    show();
  };

  const watch = async (part) => {
    let due = Date.now() + 1000 * part.dataset.seconds;
    setInterval(async () => {
      if (paused || document.hidden || Date.now() < due) return;
      due = Infinity;
      await load(part);
      due = Date.now() + 1000 * part.dataset.seconds;
    }, 500);
  };

  button.addEventListener("click", () => {
    paused = !paused;
    if (!paused) parts.forEach(load);
    show();
  });
  bar.hidden = false;
  show();
  parts.forEach(watch);
})();
