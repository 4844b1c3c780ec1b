/* The bridge between an app and its host (MCP Apps). No dependencies; the global `mcpApp` is its interface. */
(() => {
  "use strict";
  const VERSION = "2026-01-26";
  const ERRORS = "mcp-django/errors";
  const QUESTION = "mcp-django/question";
  const ORIGIN = "mcp-django/origin";
  const settings = JSON.parse(document.currentScript?.dataset.app || "{}");
  const root = document.documentElement;
  const host = window.parent;
  const pending = new Map();
  const listeners = { input: [], partial: [], result: [], cancelled: [], context: [], teardown: [] };
  const last = {};
  let nextId = 1;
  let connection = null;
  let fonts = null;
  let size = "";
  let timer = 0;

  const send = (message) => host.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const notify = (method, params = {}) => send({ method, params });
  const post = (method, params) =>
    new Promise((resolve, reject) => {
      const id = nextId++;
      pending.set(id, { resolve, reject });
      send({ id, method, params });
    });
  const request = async (method, params = {}) => {
    await app.connect();
    return post(method, params);
  };

  /* Call listeners; one that fails must not stop the others. */
  const emit = (kind, value) => {
    last[kind] = [value];
    for (const listener of listeners[kind]) run(listener, value);
  };
  const run = (listener, value) => {
    try {
      return listener(value);
    } catch (error) {
      console.error(error);
    }
  };
  const listen = (kind, repeat) => (listener) => {
    listeners[kind].push(listener);
    if (repeat && last[kind]) run(listener, last[kind][0]);
    return () => listeners[kind].splice(listeners[kind].indexOf(listener) >>> 0, 1);
  };

  const applyContext = (changes) => {
    const context = (app.hostContext = { ...app.hostContext, ...changes });
    if (context.theme === "light" || context.theme === "dark") {
      root.dataset.theme = context.theme;
      root.style.setProperty("--mcp-theme", context.theme);
    }
    for (const [name, value] of Object.entries(context.styles?.variables || {})) {
      if (!name.startsWith("--")) continue;
      if (value == null) root.style.removeProperty(name);
      else root.style.setProperty(name, value);
    }
    if (typeof context.styles?.css?.fonts === "string") {
      fonts = fonts || document.head.appendChild(document.createElement("style"));
      if (fonts.textContent !== context.styles.css.fonts) fonts.textContent = context.styles.css.fonts;
    }
    if (context.locale) {
      try {
        const locale = new Intl.Locale(context.locale);
        root.lang = locale.toString();
        root.dir = (locale.getTextInfo?.() || locale.textInfo || {}).direction || root.dir;
      } catch {
        /* An invalid locale keeps the language of the page. */
      }
    }
    const insets = context.safeAreaInsets || {};
    for (const side of ["top", "right", "bottom", "left"]) {
      if (Number.isFinite(insets[side])) root.style.setProperty(`--mcp-safe-area-${side}`, `${insets[side]}px`);
    }
    emit("context", context);
  };

  const reportSize = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      /* The height of the content, not of the frame: the root may be as high as the frame. */
      const body = document.body;
      if (!body) return;
      const style = getComputedStyle(body);
      const box = body.getBoundingClientRect();
      const margins = parseFloat(style.marginTop) + parseFloat(style.marginBottom);
      const width = Math.ceil(root.scrollWidth);
      const height = Math.ceil(Math.max(box.height, body.scrollHeight) + margins);
      if (size === `${width} ${height}`) return;
      size = `${width} ${height}`;
      notify("ui/notifications/size-changed", { width, height });
    }, 100);
  };

  const answer = async (message) => {
    const { id, method, params = {} } = message;
    if (method === "ping") return send({ id, result: {} });
    if (method === "ui/resource-teardown") {
      try {
        await Promise.all(listeners.teardown.map((listener) => listener(params)));
        return send({ id, result: {} });
      } catch (error) {
        return send({ id, error: { code: -32000, message: String(error?.message || error) } });
      }
    }
    send({ id, error: { code: -32601, message: `Method not found: ${method}` } });
  };

  /* Return the prefix that another server adds to all tools of the server of this page. */
  const getOuterPrefix = () => {
    const shown = app.hostContext.toolInfo?.tool?.name;
    const own = (settings.prefix || "") + (settings.tool || "");
    return own && shown?.endsWith(own) ? shown.slice(0, -own.length) : "";
  };

  /* Return whether a result comes from the server of this page: each proxy adds its prefix to names and results. */
  const isOwnResult = (result) => {
    const origin = result?._meta?.[ORIGIN] || "";
    const prefix = getOuterPrefix();
    return typeof origin === "string" && (!origin || prefix === origin || prefix.endsWith(`__${origin}`));
  };

  /* Ask the user the questions of a result, and return the result of the last answer. */
  const settle = async (result) => {
    let question;
    let current = result;
    while ((question = isOwnResult(current) && current?._meta?.[QUESTION])) {
      const { action, values, close } = await app.askUser(question);
      const name = getOuterPrefix() + question.tool;
      try {
        current = await post("tools/call", { name, arguments: { token: question.token, action, ...(values && { values }) } });
      } catch (error) {
        current = { content: [{ type: "text", text: String(error?.message || error) }], isError: true };
      }
      close?.();
    }
    if (current !== result && app.hostCapabilities.updateModelContext) {
      post("ui/update-model-context", { content: current.content }).catch(console.error);
    }
    return current;
  };

  const receive = {
    "ui/notifications/tool-input-partial": (params) => emit("partial", params.arguments || {}),
    "ui/notifications/tool-input": (params) => emit("input", params.arguments || {}),
    "ui/notifications/tool-result": async (params) => emit("result", await settle(params)),
    "ui/notifications/tool-cancelled": (params) => emit("cancelled", params),
    "ui/notifications/host-context-changed": applyContext,
  };

  window.addEventListener("message", (event) => {
    const message = event.data;
    if (event.source !== host || message?.jsonrpc !== "2.0") return;
    if (message.method !== undefined) {
      if (message.id !== undefined) answer(message);
      else if (Object.hasOwn(receive, message.method)) receive[message.method](message.params || {});
      return;
    }
    const waiting = pending.get(message.id);
    if (!waiting) return;
    pending.delete(message.id);
    if (message.error) {
      waiting.reject(Object.assign(new Error(message.error.message || "The host refused the request"), message.error));
    } else waiting.resolve(message.result);
  });

  const connect = async (options) => {
    const result = await post("ui/initialize", {
      appInfo: { name: options.name || settings.name || "app", version: options.version || "1" },
      appCapabilities: { availableDisplayModes: options.displayModes || ["inline"] },
      protocolVersion: VERSION,
    });
    app.hostInfo = result.hostInfo || {};
    app.hostCapabilities = result.hostCapabilities || {};
    applyContext(result.hostContext || {});
    notify("ui/notifications/initialized");
    const observer = new ResizeObserver(reportSize);
    observer.observe(root);
    if (document.body) observer.observe(document.body);
    return app.hostContext;
  };

  const app = {
    hostInfo: {},
    hostCapabilities: {},
    hostContext: {},

    /* Start the connection; later calls return the same promise. It starts by itself when the page is loaded. */
    connect: (options = {}) => (connection = connection || connect(options)),

    onToolInput: listen("input", true),
    onToolInputPartial: listen("partial", false),
    onToolResult: listen("result", true),
    onToolCancelled: listen("cancelled", true),
    onContextChanged: listen("context", false),
    onTeardown: listen("teardown", false),

    /* Return the name by which the host knows a tool of the same server: it may have a prefix. */
    getToolName: (name) => {
      const shown = app.hostContext.toolInfo?.tool?.name;
      const own = settings.tool || "";
      const prefix = own && shown?.endsWith(own) ? shown.slice(0, -own.length) : settings.prefix || "";
      return prefix + name;
    },
    callTool: async (name, args = {}) => {
      await app.connect();
      return settle(await post("tools/call", { name: app.getToolName(name), arguments: args }));
    },
    readResource: (uri) => request("resources/read", { uri }),
    openLink: (url) => request("ui/open-link", { url: String(url) }),
    sendMessage: (text) => request("ui/message", { role: "user", content: [{ type: "text", text: String(text) }] }),
    updateModelContext: (context) =>
      request("ui/update-model-context", typeof context === "string" ? { content: [{ type: "text", text: context }] } : context),
    requestDisplayMode: async (mode) => {
      await app.connect();
      const { availableDisplayModes = [], displayMode = "inline" } = app.hostContext;
      if (!availableDisplayModes.includes(mode)) return displayMode;
      const changed = (await post("ui/request-display-mode", { mode })).mode;
      applyContext({ displayMode: changed });
      return changed;
    },
    log: (level, data) => notify("notifications/message", { level, data }),
    ping: () => request("ping"),
    reportSize,
    isOwnResult,
    getErrors: (result) => result?.structuredContent?.errors || result?._meta?.[ERRORS] || null,
    getText: (result) =>
      (result?.content || []).filter((block) => block.type === "text").map((block) => block.text).join("\n"),
  };
  window.mcpApp = app;

  const start = () => app.connect().catch((error) => console.error(error));
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else queueMicrotask(start);
})();
