"use strict";
// Runs a request of the playground, and shows its events while it runs. Without this script, the same forms show all of
// it at the end. The server answers with a line of JSON for each event; it renders and escapes the forms and the result.
(() => {
  const MEDIA_TYPE = "application/x-ndjson";
  const RUNNING_ACTS = ["send", "send_json", "answer"];
  const MAX_LOG_LINES = 200;
  const area = document.getElementById("playground-run");
  if (!area || !window.ReadableStream) return;
  const part = (name) => area.querySelector(`[data-part=${name}]`);
  const status = part("status");
  let running = null;

  const say = (name) => { status.textContent = area.dataset[`${name}Text`]; };

  // The message comes last, or after an item.
  const showMessage = (event, place = null) => {
    part("wire").hidden = false;
    const rounds = part("rounds");
    let section = rounds.querySelector(`[data-round="${Number(event.round)}"]`);
    if (!section) {
      section = document.createElement("section");
      section.dataset.round = Number(event.round);
      const title = document.createElement("h3");
      title.textContent = `${area.dataset.roundText} ${Number(event.round)}`;
      section.append(title, document.createElement("ol"));
      rounds.append(section);
    }
    const item = document.createElement("li");
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    const arrow = document.createElement("span");
    arrow.textContent = event.sent ? "→" : "←";
    arrow.setAttribute("aria-hidden", "true");
    const direction = document.createElement("span");
    direction.className = "visually-hidden";
    direction.textContent = event.sent ? area.dataset.sentText : area.dataset.receivedText;
    const time = document.createElement("span");
    time.className = "playground-time";
    time.textContent = `${event.ms} ms`;
    summary.append(arrow, direction, ` ${event.title} `, time);
    const text = document.createElement("pre");
    text.tabIndex = 0;
    text.textContent = event.text;
    details.append(summary, text);
    item.append(details);
    if (place) place.after(item);
    else section.querySelector("ol").append(item);
  };

  const showProgress = ({ progress, total, message }) => {
    const line = part("progress");
    const bar = line.querySelector("progress");
    line.hidden = false;
    if (typeof progress === "number" && total > 0) bar.value = Math.min(progress / total, 1);
    else bar.removeAttribute("value");
    const numbers = typeof total === "number" ? `${progress} / ${total}` : `${progress}`;
    line.querySelector("span").textContent = message ? `${numbers}, ${message}` : numbers;
  };

  const showLog = (text) => {
    const list = part("log");
    const item = document.createElement("li");
    item.textContent = text;
    list.hidden = false;
    list.append(item);
    if (list.children.length > MAX_LOG_LINES) list.firstElementChild.remove();
  };

  const focusFirst = (element) => {
    const target = element.querySelector(".errors input, .errors textarea, .errors select, input:not([type=hidden]), #playground-result");
    if (target) target.focus({ preventScroll: false });
  };

  // The HTML comes from templates of this site, which have escaped what a tool sent.
  const showQuestion = (event) => {
    const box = document.createElement("div");
    box.dataset.question = event.id;
    box.innerHTML = event.html;
    part("questions").append(box);
    say("waiting");
    focusFirst(box);
  };

  // The server no longer waits for an answer.
  const withdraw = (id) => {
    for (const box of part("questions").children) if (box.dataset.question === String(id)) box.remove();
    if (!part("questions").children.length && !running.end) say("running");
  };

  const showErrors = (errors) => {
    for (const [name, texts] of Object.entries(errors)) {
      const field = document.getElementsByName(name)[0]?.closest(".playground-field");
      if (!field) continue;
      const list = document.createElement("ul");
      list.className = "errorlist";
      list.dataset.runError = "true";
      for (const text of texts) {
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

  const showEnd = (event) => {
    part("questions").replaceChildren();
    part("result").innerHTML = event.html;
    for (const [id, html] of Object.entries(event.parts ?? {})) document.getElementById(id).innerHTML = html;
    showErrors(event.errors ?? {});
    running.end = part("result").querySelector(".playground-questions") ? "waiting" : "done";
    focusFirst(part("result"));
  };

  const show = (event) => {
    if (event.kind === "message") {
      running.origin ??= performance.now() - event.ms;
      showMessage(event);
    }
    if (event.kind === "question") showQuestion(event);
    if (event.kind === "end") showEnd(event);
    if (event.progress) showProgress(event.progress);
    if (event.log) showLog(event.log);
    if (event.withdrawn) withdraw(event.withdrawn);
  };

  const read = async (response) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.trim()) show(JSON.parse(line));
    }
  };

  // What is not a run, such as a form with an error, is an ordinary page: the browser sends the form itself.
  const submitPlainly = (form, submitter) => {
    const act = document.createElement("input");
    act.type = "hidden";
    act.name = submitter.name;
    act.value = submitter.value;
    form.append(act);
    form.submit();
  };

  const start = (isFirstRound) => {
    part("live").hidden = false;
    part("cancel").hidden = false;
    part("progress").hidden = true;
    part("log").hidden = true;
    part("log").replaceChildren();
    part("questions").replaceChildren();
    if (isFirstRound) {
      part("result").replaceChildren();
      clearErrors();
      part("rounds").replaceChildren();
      part("wire").hidden = true;
    }
    say("running");
    area.scrollIntoView({ block: "nearest" });
  };

  const run = async (form, submitter) => {
    running?.controller.abort();
    const current = { controller: new AbortController(), end: null, origin: null };
    running = current;
    const body = new FormData(form, submitter);
    start(submitter.value !== "answer");
    try {
      const response = await fetch(form.getAttribute("action") ?? location.href, {
        method: "POST", body, headers: { Accept: MEDIA_TYPE }, credentials: "same-origin", signal: current.controller.signal,
      });
      if (!(response.headers.get("Content-Type") ?? "").startsWith(MEDIA_TYPE)) {
        submitPlainly(form, submitter);
        return;
      }
      await read(response);
      say(current.end ?? "failed");
    } catch (error) {
      if (running !== current) return;
      part("questions").replaceChildren();
      say(error.name === "AbortError" ? "cancelled" : "failed");
    }
    if (running === current) part("cancel").hidden = true;
  };

  const reply = async (form, submitter) => {
    const box = form.closest("[data-question]");
    const body = new FormData(form, submitter);
    // The answer to the call may arrive before the response to this request.
    const place = part("rounds").querySelector("section:last-child li:last-child");
    const ms = Math.round(performance.now() - running.origin);
    submitter.disabled = true;
    try {
      const response = await fetch(form.getAttribute("action") ?? location.href, { method: "POST", body, credentials: "same-origin" });
      const answer = await response.json();
      if (answer.html) {
        box.innerHTML = answer.html;
        focusFirst(box);
        return;
      }
      box.remove();
      if (answer.error) showLog(answer.error);
      else showMessage({ ...answer, round: 1, ms }, place);
      if (!part("questions").children.length && !running.end) say("running");
    } catch {
      submitter.disabled = false;
      say("failed");
    }
  };

  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (submitter?.name !== "act") return;
    if (submitter.value === "reply") {
      event.preventDefault();
      reply(form, submitter);
    } else if (RUNNING_ACTS.includes(submitter.value)) {
      event.preventDefault();
      run(form, submitter);
    }
  });
  part("cancel").addEventListener("click", () => running?.controller.abort());
})();
