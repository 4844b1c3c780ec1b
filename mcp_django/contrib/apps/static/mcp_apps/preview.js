"use strict";
// A host of MCP Apps: frames one view, speaks JSON-RPC with it by postMessage, and sends its calls to the server.
(() => {
  const byId = (id) => document.getElementById(id);
  const form = byId("call");
  if (!form) return;

  const PROTOCOL_VERSION = "2026-01-26";
  const MAX_MESSAGES = 300, MAX_HEIGHT = 2000, TEARDOWN_MS = 2000;
  const data = JSON.parse(byId("preview-data").textContent);
  const texts = byId("texts").dataset;
  const stage = byId("stage");
  const VARIABLES = {
    light: {
      "--color-background-primary": "#ffffff", "--color-background-secondary": "#f4f6f5", "--color-text-primary": "#16201e",
      "--color-text-secondary": "#56625f", "--color-border-primary": "#8a9793", "--color-text-danger": "#9c2222",
    },
    dark: {
      "--color-background-primary": "#17191c", "--color-background-secondary": "#22262a", "--color-text-primary": "#e7eeeb",
      "--color-text-secondary": "#9daca7", "--color-border-primary": "#6d7c78", "--color-text-danger": "#ff9d97",
    },
  };
  const FONTS = { "--font-sans": "system-ui, sans-serif", "--font-mono": "ui-monospace, monospace", "--border-radius-md": "8px" };
  let view = null;

  const show = (element, value) => { element.textContent = typeof value === "string" ? value : JSON.stringify(value, null, 2); };
  const setStatus = (state) => {
    byId("status").dataset.state = state;
    show(byId("status"), texts[state]);
  };
  const chosen = (name) => form.elements[name].value;

  function addProblem(text) {
    const item = document.createElement("li");
    item.textContent = text;
    byId("problems").append(item);
    byId("problem-count").textContent = byId("problems").childElementCount;
  }

  function logMessage(message, origin) {
    const list = byId("messages");
    const item = document.createElement("li"), details = document.createElement("details");
    const summary = document.createElement("summary"), note = document.createElement("small"), body = document.createElement("pre");
    summary.textContent = `${message.method ?? (message.error ? "error" : "result")} `;
    note.textContent = origin;
    summary.append(note);
    show(body, message);
    details.append(summary, body);
    item.append(details);
    list.append(item);
    byId("message-count").textContent = Number(byId("message-count").textContent) + 1;
    if (list.childElementCount > MAX_MESSAGES) list.firstElementChild.remove();
  }

  async function sendToServer(method, params, visibility) {
    const body = new FormData();
    body.set("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
    body.set("server", data.server);
    body.set("visibility", visibility);
    body.set("request", JSON.stringify({ method, params }));
    try {
      const response = await fetch(form.dataset.request, { method: "POST", body, credentials: "same-origin" });
      return await response.json();
    } catch (problem) {
      return { error: { code: -32000, message: `${texts.failed} ${problem.message}` } };
    }
  }

  function buildContext() {
    const theme = chosen("theme");
    return {
      theme, styles: { variables: { ...VARIABLES[theme], ...FONTS } }, displayMode: "inline", availableDisplayModes: ["inline"],
      containerDimensions: { width: view.frame.clientWidth, maxHeight: MAX_HEIGHT }, locale: document.documentElement.lang,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone, platform: "web", userAgent: "mcp_django preview",
      deviceCapabilities: { touch: navigator.maxTouchPoints > 0, hover: matchMedia("(hover: hover)").matches },
      toolInfo: { tool: view.tool.definition },
    };
  }

  function showResult(response) {
    const blocks = response.result?.content ?? [];
    show(byId("content"), response.error?.message ?? blocks.map((block) => block.text ?? `[${block.type}]`).join("\n\n"));
    show(byId("result"), response.result ?? response.error);
  }

  class AppFrame {
    constructor(tool, args) {
      this.tool = tool;
      this.frame = document.createElement("iframe");
      this.frame.setAttribute("sandbox", "allow-scripts");
      this.frame.title = tool.definition.title ?? tool.definition.name;
      this.frame.src = `${form.dataset.frame}?${new URLSearchParams({ server: data.server, uri: tool.uri })}`;
      this.pending = new Map();
      this.nextId = 1;
      this.initialized = new Promise((resolve) => { this.resolveInitialized = resolve; });
      this.run(args);
    }

    async run(args) {
      const ready = this.initialized.then(() => this.notify("ui/notifications/tool-input", { arguments: args }));
      const response = await sendToServer("tools/call", { name: this.tool.definition.name, arguments: args }, "model");
      if (view !== this) return;
      showResult(response);
      await ready;
      if (response.result) this.notify("ui/notifications/tool-result", response.result);
      else this.notify("ui/notifications/tool-cancelled", { reason: response.error.message });
    }

    send(message) {
      logMessage(message, texts.sent);
      this.frame.contentWindow?.postMessage(message, "*");
    }

    notify(method, params) { this.send({ jsonrpc: "2.0", method, params }); }

    request(method, params) {
      const id = this.nextId++;
      return new Promise((resolve) => {
        this.pending.set(id, resolve);
        setTimeout(resolve, TEARDOWN_MS);
        this.send({ jsonrpc: "2.0", id, method, params });
      });
    }

    async receive(message) {
      if (message?.jsonrpc !== "2.0") return;
      if (message.method === "ui/notifications/sandbox-problem") {
        addProblem(`${message.params?.kind}: ${message.params?.detail}`);
        return;
      }
      logMessage(message, texts.received);
      if (message.method === undefined) {
        this.pending.get(message.id)?.(message);
        this.pending.delete(message.id);
      } else if (message.id === undefined) this.handleNotification(message);
      else this.send({ jsonrpc: "2.0", id: message.id, ...(await this.respond(message)) });
    }

    handleNotification({ method, params }) {
      if (method === "ui/notifications/initialized") {
        setStatus("connected");
        this.resolveInitialized();
      } else if (method === "ui/notifications/size-changed" && Number.isFinite(params?.height)) {
        this.frame.style.height = `${Math.min(MAX_HEIGHT, Math.max(0, Math.ceil(params.height)))}px`;
      } else if (method === "ui/notifications/request-teardown") closeView();
    }

    async respond({ method, params = {} }) {
      switch (method) {
        case "ui/initialize":
          return { result: {
            protocolVersion: PROTOCOL_VERSION, hostInfo: { name: "mcp_django preview", version: "1" },
            hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, updateModelContext: { text: {}, structuredContent: {} }, message: { text: {} } },
            hostContext: buildContext(),
          } };
        case "tools/call": case "resources/read":
          return sendToServer(method, params, "app");
        case "ui/open-link":
          return openLink(params.url);
        case "ui/request-display-mode":
          return { result: { mode: "inline" } };
        case "ping": case "ui/message": case "ui/update-model-context":
          return { result: {} };
        default:
          return { error: { code: -32601, message: `The preview does not support ${method}` } };
      }
    }
  }

  function openLink(url) {
    if (!/^https?:\/\//i.test(url)) return { error: { code: -32000, message: "Only http and https links can be opened" } };
    const paragraph = byId("link"), anchor = paragraph.querySelector("a");
    anchor.href = url;
    anchor.textContent = url;
    paragraph.hidden = false;
    return { result: {} };
  }

  async function closeView() {
    const closing = view;
    if (!closing) return;
    byId("close").disabled = true;
    await closing.request("ui/resource-teardown", { reason: "closed" });
    closing.frame.remove();
    if (view === closing) {
      view = null;
      setStatus("closed");
    }
  }

  function openView(args) {
    for (const id of ["problems", "messages", "content", "result"]) byId(id).replaceChildren();
    for (const id of ["problem-count", "message-count"]) byId(id).textContent = "0";
    byId("link").hidden = true;
    view?.frame.remove();
    setStatus("waiting");
    view = new AppFrame(data.tools[chosen("tool")], args);
    const width = Number(chosen("width"));
    view.frame.style.width = width ? `${width}px` : "";
    stage.replaceChildren(view.frame);
    byId("close").disabled = false;
  }

  function readArguments() {
    try {
      const value = JSON.parse(byId("arguments").value || "{}");
      return value && typeof value === "object" && !Array.isArray(value) ? value : null;
    } catch {
      return null;
    }
  }

  function applySwitches() {
    const current = view;
    stage.dataset.theme = chosen("theme");
    if (!current) return;
    const width = Number(chosen("width"));
    current.frame.style.width = width ? `${width}px` : "";
    current.initialized.then(() => {
      if (view !== current) return;
      const { theme, styles, containerDimensions } = buildContext();
      current.notify("ui/notifications/host-context-changed", { theme, styles, containerDimensions });
    });
  }

  function fillExample() {
    byId("arguments").value = JSON.stringify(data.tools[chosen("tool")].example, null, 2);
  }

  addEventListener("message", (event) => { if (view && event.source === view.frame.contentWindow) view.receive(event.data); });
  addEventListener("securitypolicyviolation", (event) => addProblem(`violation: ${event.effectiveDirective} ${event.blockedURI}`));
  byId("tool").addEventListener("change", fillExample);
  byId("close").addEventListener("click", closeView);
  form.addEventListener("change", (event) => { if (["theme", "width"].includes(event.target.name)) applySwitches(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const args = readArguments();
    show(byId("arguments-error"), args ? "" : texts.invalid);
    byId("arguments").setAttribute("aria-invalid", String(!args));
    if (args) openView(args);
    else byId("arguments").focus();
  });
  if (matchMedia("(prefers-color-scheme: dark)").matches) form.elements.theme.value = "dark";
  stage.dataset.theme = chosen("theme");
  if (data.arguments) byId("arguments").value = data.arguments;
  else fillExample();
})();
