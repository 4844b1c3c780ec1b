// Copy buttons, tabs and the filter. Without this script every snippet is there, one below the other.
document.documentElement.classList.add("js");

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
      button.classList.add("done");
    } catch {
      // Pages from other than loopback or https have no clipboard: select the text instead.
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; button.classList.remove("done"); }, 1600);
  });
}

for (const group of document.querySelectorAll(".tabs")) {
  const panels = [...group.querySelectorAll(".tab")];
  const list = document.createElement("div");
  list.className = "tablist";
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "MCP clients");
  const tabs = panels.map((panel) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `${panel.id}-tab`;
    tab.textContent = panel.dataset.label;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => select(tab));
    list.append(tab);
    return tab;
  });
  const select = (chosen) => tabs.forEach((tab, index) => {
    tab.setAttribute("aria-selected", tab === chosen);
    tab.tabIndex = tab === chosen ? 0 : -1;
    panels[index].hidden = tab !== chosen;
  });
  list.addEventListener("keydown", (event) => {
    const here = tabs.indexOf(document.activeElement);
    const goal = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    const tab = tabs[(goal + tabs.length) % tabs.length];
    select(tab);
    tab.focus();
  });
  group.prepend(list);
  select(tabs[0]);
}

// On a wide screen the lines for clients are open from the start.
if (matchMedia("(min-width: 60rem)").matches) {
  for (const fold of document.querySelectorAll("[data-open-on-wide]")) fold.open = true;
}

for (const input of document.querySelectorAll("[data-filter]")) {
  const entries = [...document.querySelectorAll(input.dataset.filter)];
  const count = document.getElementById(input.getAttribute("aria-describedby"));
  input.closest("label").hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const entry of entries) {
      const text = entry.textContent.toLowerCase();
      entry.hidden = !words.every((word) => text.includes(word));
      shown += !entry.hidden;
    }
    count.textContent = words.length ? `${shown} of ${entries.length}` : "";
  });
}
