"use strict";
// A host of MCP Apps: frames one view at a time, speaks JSON-RPC with it by postMessage, and lists its problems and
// messages. A page gives it an element with the parts `data-app-part`, and a function that sends calls to the server.
window.mcpAppHost = (() => {
  const PROTOCOL_VERSION = "2026-01-26";
  const MAX_MESSAGES = 300, MAX_PROBLEMS = 100, MAX_HEIGHT = 2000, TEARDOWN_MS = 2000, SILENCE_MS = 15000;
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

  const findTheme = () => {
    const chosen = document.documentElement.dataset.theme;
    if (chosen === "light" || chosen === "dark") return chosen;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  };

  class AppFrame {
    constructor(host, { source, tool, input, response }) {
      this.host = host;
      this.tool = tool;
      this.pending = new Map();
      this.nextId = 1;
      this.initialized = new Promise((resolve) => { this.resolveInitialized = resolve; });
      this.frame = document.createElement("iframe");
      this.frame.setAttribute("sandbox", "allow-scripts");
      this.frame.title = tool.title ?? tool.name;
      this.frame.src = source;
      this.silence = setTimeout(() => { if (host.view === this) host.setStatus("silent"); }, SILENCE_MS);
      this.run(input, response);
    }

    async run(input, response) {
      const ready = this.initialized.then(() => this.notify("ui/notifications/tool-input", { arguments: input }));
      const { result, error } = await response;
      await ready;
      if (this.host.view !== this) return;
      if (error) this.notify("ui/notifications/tool-cancelled", { reason: error.message });
      else this.notify("ui/notifications/tool-result", result);
    }

    remove() {
      clearTimeout(this.silence);
      this.frame.remove();
    }

    send(message) {
      this.host.logMessage(message, this.host.texts.sent);
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
        this.host.addProblem(`${message.params?.kind}: ${message.params?.detail}`);
        return;
      }
      this.host.logMessage(message, this.host.texts.received);
      if (message.method === undefined) {
        this.pending.get(message.id)?.(message);
        this.pending.delete(message.id);
      } else if (message.id === undefined) this.handleNotification(message);
      else this.send({ jsonrpc: "2.0", id: message.id, ...(await this.respond(message)) });
    }

    handleNotification({ method, params }) {
      if (method === "ui/notifications/initialized") {
        clearTimeout(this.silence);
        this.host.setStatus("connected");
        this.resolveInitialized();
      } else if (method === "ui/notifications/size-changed" && Number.isFinite(params?.height)) {
        this.frame.style.height = `${Math.min(MAX_HEIGHT, Math.max(0, Math.ceil(params.height)))}px`;
      } else if (method === "ui/notifications/request-teardown") this.host.close();
    }

    async respond({ method, params }) {
      switch (method) {
        case "ui/initialize":
          return { result: {
            protocolVersion: PROTOCOL_VERSION, hostInfo: { name: this.host.name, version: "1" },
            hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, updateModelContext: { text: {}, structuredContent: {} }, message: { text: {} } },
            hostContext: this.buildContext(),
          } };
        case "tools/call": case "resources/read":
          return this.host.sendToServer(method, params ?? {});
        case "ui/open-link":
          return this.host.openLink(params?.url);
        case "ui/request-display-mode":
          return { result: { mode: "inline" } };
        case "ping": case "ui/message": case "ui/update-model-context":
          return { result: {} };
        default:
          return { error: { code: -32601, message: `This host does not support ${method}` } };
      }
    }

    buildContext() {
      const { theme } = this.host;
      return {
        theme, styles: { variables: { ...VARIABLES[theme], ...FONTS } }, displayMode: "inline", availableDisplayModes: ["inline"],
        containerDimensions: { width: this.frame.clientWidth, maxHeight: MAX_HEIGHT }, locale: document.documentElement.lang,
        timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone, platform: "web", userAgent: this.host.name,
        deviceCapabilities: { touch: navigator.maxTouchPoints > 0, hover: matchMedia("(hover: hover)").matches },
        toolInfo: { tool: this.tool },
      };
    }

    async applySwitches() {
      await this.initialized;
      if (this.host.view !== this) return;
      const { theme, styles, containerDimensions } = this.buildContext();
      this.notify("ui/notifications/host-context-changed", { theme, styles, containerDimensions });
    }
  }

  // `send(method, params)` returns a promise of `{ result }` or `{ error }`; `onClose` is called without a view.
  class AppHost {
    constructor(root, { name, send, onClose = () => {} }) {
      this.root = root;
      this.name = name;
      this.sendToServer = send;
      this.onClose = onClose;
      this.texts = root.querySelector("[data-app-part=texts]").dataset;
      this.view = null;
      for (const input of this.listSwitches("theme")) input.checked = input.value === findTheme();
      this.part("stage").dataset.theme = this.theme;
      root.addEventListener("change", (event) => { if (event.target.dataset.appSwitch) this.applySwitches(); });
      this.part("close").addEventListener("click", () => this.close());
      addEventListener("message", (event) => {
        if (this.view && event.source === this.view.frame.contentWindow) this.view.receive(event.data);
      });
      addEventListener("securitypolicyviolation", (event) => this.addProblem(`violation: ${event.effectiveDirective} ${event.blockedURI}`));
    }

    part(name) { return this.root.querySelector(`[data-app-part="${name}"]`); }

    listSwitches(name) { return [...this.root.querySelectorAll(`[data-app-switch="${name}"]`)]; }

    get theme() { return this.listSwitches("theme").find((input) => input.checked)?.value ?? findTheme(); }

    get width() { return Number(this.listSwitches("width").find((input) => input.checked)?.value ?? 0); }

    // `source` is the URL of the document, `tool` its definition, `input` the arguments and `response` a promise.
    async open({ source, tool, input, response }) {
      await this.close();
      for (const name of ["problems", "messages"]) this.part(name).replaceChildren();
      for (const name of ["problem-count", "message-count"]) this.part(name).textContent = "0";
      this.part("link").hidden = true;
      this.setStatus("waiting");
      this.view = new AppFrame(this, { source, tool, input, response });
      this.setWidth();
      this.part("stage").replaceChildren(this.view.frame);
      this.part("close").disabled = false;
    }

    // Asks the view to end, waits a moment, and removes its frame.
    async close() {
      const closing = this.view;
      if (!closing) return;
      this.part("close").disabled = true;
      if (this.part("status").dataset.state === "connected") await closing.request("ui/resource-teardown", { reason: "closed" });
      closing.remove();
      if (this.view !== closing) return;
      this.view = null;
      this.setStatus("closed");
      this.onClose();
    }

    applySwitches() {
      this.part("stage").dataset.theme = this.theme;
      this.setWidth();
      this.view?.applySwitches();
    }

    setWidth() {
      if (this.view) this.view.frame.style.width = this.width ? `${this.width}px` : "";
    }

    setStatus(state) {
      const status = this.part("status");
      status.dataset.state = state;
      status.textContent = this.texts[state];
    }

    openLink(url) {
      if (!/^https?:\/\//i.test(url)) return { error: { code: -32000, message: "Only http and https links can be opened" } };
      const paragraph = this.part("link"), anchor = paragraph.querySelector("a");
      anchor.href = url;
      anchor.textContent = url;
      paragraph.hidden = false;
      return { result: {} };
    }

    addProblem(text) {
      const list = this.part("problems"), count = this.part("problem-count");
      count.textContent = Number(count.textContent) + 1;
      if (list.childElementCount >= MAX_PROBLEMS) return;
      const item = document.createElement("li");
      item.textContent = text;
      list.append(item);
    }

    logMessage(message, origin) {
      const list = this.part("messages"), count = this.part("message-count");
      const item = document.createElement("li"), details = document.createElement("details");
      const summary = document.createElement("summary"), note = document.createElement("small"), body = document.createElement("pre");
      summary.textContent = `${message.method ?? (message.error ? "error" : "result")} `;
      note.textContent = origin;
      summary.append(note);
      body.textContent = JSON.stringify(message, null, 2);
      details.append(summary, body);
      item.append(details);
      list.append(item);
      count.textContent = Number(count.textContent) + 1;
      if (list.childElementCount > MAX_MESSAGES) list.firstElementChild.remove();
    }
  }

  return { AppHost };
})();
