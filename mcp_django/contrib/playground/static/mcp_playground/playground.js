"use strict";
// Narrows the list while the user types, shows its chosen entry, opens pickers of dates and times, and loads suggestions.
(() => {
  const SUGGEST_MILLISECONDS = 250;

  for (const input of document.querySelectorAll("[data-filters]")) {
    const rows = [...document.getElementById(input.dataset.filters).children];
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.dataset.text.toLowerCase().includes(wanted);
    });
  }

  // On a phone, the list scrolls by itself. The page stays where it is.
  for (const chosen of document.querySelectorAll(".playground-entries [aria-current]")) {
    const list = chosen.closest("ul");
    list.scrollTop += chosen.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;
  }

  const formatOffset = (date) => {
    const minutes = -date.getTimezoneOffset();
    const digits = (number) => String(Math.floor(Math.abs(number))).padStart(2, "0");
    return minutes ? `${minutes < 0 ? "-" : "+"}${digits(minutes / 60)}:${digits(minutes % 60)}` : "Z";
  };
  const FORMATS = {
    date: (value) => value,
    time: (value) => `${value}:00${formatOffset(new Date())}`,
    "datetime-local": (value) => `${value}:00${formatOffset(new Date(value))}`,
  };

  // The text input is what is sent. The picker of the browser only writes into it.
  const addPicker = (input) => {
    const form = input.closest("[data-pick-text]");
    const picker = document.createElement("input");
    if (!form || !picker.showPicker) return;
    picker.type = input.dataset.picker;
    picker.className = "visually-hidden";
    picker.tabIndex = -1;
    picker.setAttribute("aria-hidden", "true");
    picker.addEventListener("change", () => {
      if (picker.value) input.value = FORMATS[input.dataset.picker](picker.value);
    });
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button";
    button.textContent = form.dataset.pickText;
    button.setAttribute("aria-describedby", input.labels[0].id ||= `${input.id}_label`);
    button.addEventListener("click", () => picker.showPicker());
    const line = document.createElement("span");
    line.className = "playground-suggestions";
    input.replaceWith(line);
    line.append(input, button, picker);
  };
  document.querySelectorAll("[data-picker]").forEach(addPicker);

  const addSuggestions = (input) => {
    let timer = 0;
    let controller = new AbortController();
    const load = async () => {
      controller.abort();
      controller = new AbortController();
      const body = new FormData(input.form);
      body.set("suggest", input.dataset.suggest);
      const options = { method: "POST", body, headers: { Accept: "application/json" }, signal: controller.signal };
      try {
        const response = await fetch(input.form.getAttribute("action"), options);
        if (!response.ok || response.redirected) return;
        const { values } = await response.json();
        input.list.replaceChildren(...values.map((value) => new Option("", value)));
      } catch {
        // The suggestions stay as they are.
      }
    };
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(load, SUGGEST_MILLISECONDS);
    });
    input.addEventListener("focus", load, { once: true });
    input.parentElement.querySelector("button[name=suggest]").hidden = true;
  };
  document.querySelectorAll("[data-suggest]").forEach(addSuggestions);
})();
