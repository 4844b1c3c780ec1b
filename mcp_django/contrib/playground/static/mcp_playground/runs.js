"use strict";
// Runs requests of the playground, and shows their events while they run. Without this script, the same forms show all
// of it at the end. The server answers with a line of JSON for each event; it renders and escapes the forms and the result.
window.playgroundRuns = (() => {
  const MEDIA_TYPE = "application/x-ndjson";
  const MAIN_ACTS = ["send", "send_json"], CONTINUING_ACTS = ["answer", "app"];
  const MAX_LOG_LINES = 200;
  const area = document.getElementById("playground-run");
  if (!area || !window.ReadableStream) return null;
  const texts = area.dataset;
  const wire = area.querySelector("[data-part=wire]"), rounds = area.querySelector("[data-part=rounds]");
  const runs = new Map();

  // Returns the list of the messages of a round, which it adds if it is new.
  const findRound = (label, number) => {
    wire.hidden = false;
    const key = `${label}${number}`;
    let section = [...rounds.children].find((each) => each.dataset.round === key);
    if (!section) {
      section = document.createElement("section");
      section.dataset.round = key;
      const title = document.createElement("h3");
      title.textContent = `${label}${texts.roundText.replace("0", number)}`; // the text has a 0 in place of the number
      section.append(title, document.createElement("ol"));
      rounds.append(section);
    }
    return section.querySelector("ol");
  };

  const buildMessage = (event) => {
    const item = document.createElement("li");
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    const arrow = document.createElement("span");
    arrow.textContent = event.sent ? "→" : "←";
    arrow.setAttribute("aria-hidden", "true");
    const direction = document.createElement("span");
    direction.className = "visually-hidden";
    direction.textContent = event.sent ? texts.sentText : texts.receivedText;
    const time = document.createElement("span");
    time.className = "playground-time";
    time.textContent = `${event.ms} ms`;
    summary.append(arrow, direction, ` ${event.title} `, time);
    const text = document.createElement("pre");
    text.tabIndex = 0;
    text.textContent = event.text;
    details.append(summary, text);
    item.append(details);
    return item;
  };

  const showErrors = (errors) => {
    for (const [name, found] of Object.entries(errors)) {
      const field = document.getElementsByName(name)[0]?.closest(".playground-field");
      if (!field) continue;
      const list = document.createElement("ul");
      list.className = "errorlist";
      list.dataset.runError = "true";
      for (const text of found) {
        const item = document.createElement("li");
        item.textContent = text;
        list.append(item);
      }
      field.classList.add("errors");
      field.prepend(list);
    }
  };

  const clearErrors = () => {
    for (const list of document.querySelectorAll("[data-run-error]")) {
      list.parentElement.classList.remove("errors");
      list.remove();
    }
  };

  // One operation with its rounds, shown in the parts of an element. Its messages are in the list that all runs share.
  class Run {
    constructor(root, { url = null, label = "", onResponse = () => {} } = {}) {
      this.root = root;
      this.url = url;
      this.label = label;
      this.onResponse = onResponse;
      this.sending = null;
      runs.set(root, this);
      this.part("status").tabIndex = -1;
      this.part("cancel").addEventListener("click", () => this.cancel());
    }

    part(name) { return this.root.querySelector(`[data-part=${name}]`); }

    setStatus(name) { this.part("status").textContent = texts[`${name}Text`]; }

    // An app must not move the focus to a button: its user may be typing. Fields with an error come first.
    focusFirst(element) {
      if (this.url) return;
      const target = element.querySelector(".errors input, .errors textarea, .errors select")
        ?? element.querySelector("input:not([type=hidden]), #playground-result");
      target?.focus();
    }

    // An element that is removed or hidden would take the focus with it, and the next Tab would start at the top.
    keepFocus(element) {
      if (element.contains(document.activeElement)) this.part("status").focus({ preventScroll: true });
    }

    removeQuestions() {
      this.keepFocus(this.part("questions"));
      this.part("questions").replaceChildren();
    }

    get address() { return this.url ?? location.href; }

    cancel() { this.sending?.controller.abort(); }

    refuse() { this.onResponse(null, "refused"); }

    // Sends the body of a form, and shows the events of the response. Returns false for a response without events.
    async send(body, { address = this.address, isFirstRound = true } = {}) {
      this.cancel();
      const sending = this.sending = { controller: new AbortController(), end: null, origin: null };
      this.start(isFirstRound);
      try {
        const response = await fetch(address, {
          method: "POST", body, headers: { Accept: MEDIA_TYPE }, credentials: "same-origin", signal: sending.controller.signal,
        });
        if (!(response.headers.get("Content-Type") ?? "").startsWith(MEDIA_TYPE)) return false;
        await this.read(response, sending);
        if (this.sending === sending) this.setStatus(sending.end ?? "failed");
      } catch (error) {
        if (this.sending !== sending) return true;
        this.removeQuestions();
        sending.end = error.name === "AbortError" ? "cancelled" : "failed";
        this.setStatus(sending.end);
      }
      if (this.sending !== sending) return true;
      this.keepFocus(this.part("cancel"));
      this.part("cancel").hidden = true;
      if (["cancelled", "failed", "revoked", null].includes(sending.end)) this.onResponse(null, sending.end);
      return true;
    }

    start(isFirstRound) {
      this.part("live").hidden = false;
      this.part("cancel").hidden = false;
      this.part("progress").hidden = true;
      this.part("log").hidden = true;
      this.part("log").replaceChildren();
      this.removeQuestions();
      if (isFirstRound || this.url) this.part("result").replaceChildren();
      this.setStatus("running");
    }

    async read(response, sending) {
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done || this.sending !== sending) return;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line.trim()) this.show(JSON.parse(line), sending);
      }
    }

    show(event, sending) {
      if (event.kind === "message") {
        sending.origin ??= performance.now() - event.ms;
        findRound(this.label, Number(event.round)).append(buildMessage(event));
      }
      if (event.kind === "question") this.showQuestion(event);
      if (event.kind === "revoked") this.showRevoked(sending);
      if (event.kind === "end") this.showEnd(event, sending);
      if (event.progress) this.showProgress(event.progress);
      if (event.log) this.showLog(event.log);
      if (event.withdrawn) this.withdraw(event.withdrawn);
    }

    showProgress({ progress, total, message }) {
      const line = this.part("progress");
      const bar = line.querySelector("progress");
      line.hidden = false;
      if (typeof progress === "number" && total > 0) bar.value = Math.min(progress / total, 1);
      else bar.removeAttribute("value");
      const numbers = typeof total === "number" ? `${progress} / ${total}` : `${progress}`;
      line.querySelector("span").textContent = message ? `${numbers}, ${message}` : numbers;
    }

    showLog(text) {
      const list = this.part("log");
      const item = document.createElement("li");
      item.textContent = text;
      list.hidden = false;
      list.append(item);
      if (list.children.length > MAX_LOG_LINES) list.firstElementChild.remove();
    }

    // The HTML comes from templates of this site, which have escaped what a tool sent.
    showQuestion(event) {
      const box = document.createElement("div");
      box.dataset.question = event.id;
      box.innerHTML = event.html;
      this.part("questions").append(box);
      this.setStatus("waiting");
      this.focusFirst(box);
    }

    // The server no longer waits for an answer.
    withdraw(id) {
      const box = [...this.part("questions").children].find((each) => each.dataset.question === String(id));
      if (box) {
        this.keepFocus(box);
        box.remove();
      }
      this.showWhetherRunning();
    }

    showWhetherRunning() {
      if (!this.part("questions").children.length && !this.sending.end) this.setStatus("running");
    }

    showRevoked(sending) {
      this.removeQuestions();
      this.part("result").replaceChildren();
      sending.end = "revoked";
    }

    showEnd(event, sending) {
      this.removeQuestions();
      this.part("result").innerHTML = event.html;
      for (const [id, html] of Object.entries(event.parts ?? {})) document.getElementById(id).innerHTML = html;
      showErrors(event.errors ?? {});
      const form = this.part("result").querySelector(".playground-questions");
      sending.end = form ? (form.querySelector("[data-refuse]") ? "confirm" : "waiting") : "done";
      this.focusFirst(this.part("result"));
      if (sending.end === "done") this.onResponse(event.response ?? null);
    }

    // The answer to the call may arrive before the response to this request.
    async reply(form, submitter) {
      const box = form.closest("[data-question]");
      const place = rounds.querySelector("section:last-child li:last-child");
      const { origin } = this.sending;
      const body = new FormData(form, submitter);
      this.keepFocus(box); // a disabled button would lose it as well
      submitter.disabled = true;
      try {
        const response = await fetch(form.getAttribute("action") ?? this.address, { method: "POST", body, credentials: "same-origin" });
        const answer = await response.json();
        if (answer.html) {
          box.innerHTML = answer.html;
          this.focusFirst(box);
          return;
        }
        box.remove();
        if (answer.error) this.showLog(answer.error);
        else place.after(buildMessage({ ...answer, ms: Math.round(performance.now() - origin) }));
        this.showWhetherRunning();
      } catch {
        submitter.disabled = false;
        submitter.focus();
        this.setStatus("failed");
      }
    }

    remove() {
      this.sending?.controller.abort();
      runs.delete(this.root);
      this.root.remove();
    }
  }

  // What is not a run, such as a form with an error, is an ordinary page: the browser sends the form itself.
  const submitPlainly = (form, submitter) => {
    const act = document.createElement("input");
    act.type = "hidden";
    act.name = submitter.name;
    act.value = submitter.value;
    form.append(act);
    form.submit();
  };

  const announce = (name) => area.dispatchEvent(new CustomEvent(`playground:${name}`));
  const main = new Run(area, { onResponse: () => announce("end") });

  const findRun = (form) => {
    for (let element = form; element; element = element.parentElement) if (runs.has(element)) return runs.get(element);
    return main;
  };

  const send = async (run, form, submitter) => {
    const isFirstRound = MAIN_ACTS.includes(submitter.value);
    const body = new FormData(form, submitter);
    if (isFirstRound) {
      announce("start");
      clearErrors();
      rounds.replaceChildren();
      wire.hidden = true;
    }
    const sent = run.send(body, { address: form.getAttribute("action") ?? run.address, isFirstRound });
    if (run === main) area.scrollIntoView({ block: "nearest" });
    if (!(await sent) && run === main) submitPlainly(form, submitter);
    else if (!(await sent)) run.onResponse(null);
  };

  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (submitter?.name !== "act") return;
    const run = findRun(form);
    if (submitter.value === "reply") {
      event.preventDefault();
      run.reply(form, submitter);
    } else if (MAIN_ACTS.includes(submitter.value) || CONTINUING_ACTS.includes(submitter.value)) {
      event.preventDefault();
      send(run, form, submitter);
    }
  });

  document.addEventListener("click", (event) => {
    if (event.target.matches("[data-refuse]")) findRun(event.target).refuse();
  });

  return { area, Run };
})();
