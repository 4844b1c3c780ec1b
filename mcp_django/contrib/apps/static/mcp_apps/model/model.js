/* Shared parts of the ready-made apps of a model: its description, calls of its tools, values as text, and views.
 *
 * The page has no data. Titles and permitted tools come from the tool `describe`, in the language of the user.
 */
(() => {
  "use strict";
  const settings = JSON.parse(document.getElementById("mcp-model").textContent);
  const base = settings.tool.slice(0, -settings.verb.length);
  const root = document.getElementById("view");
  const status = document.getElementById("status");
  const EMPTY = { title: settings.title, fields: [], search: [], tools: [], page_size: 20, max_limit: 100 };
  let description = null;
  let title = null;

  /* Return a text of the page in the language of the host, or else in that of the page. */
  const translate = (text, values = {}) => {
    const locale = (mcpApp.hostContext.locale || document.documentElement.lang || "").toLowerCase();
    const known = settings.texts[locale] || settings.texts[locale.split("-")[0]] || {};
    const found = known[text] || text;
    return Object.entries(values).reduce((line, [name, value]) => line.replace(`{${name}}`, () => value), found);
  };

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
  const makeButton = (text, onClick, className = "") => {
    const button = make("button", { type: "button", className, textContent: text });
    button.addEventListener("click", () => onClick(button));
    return button;
  };

  const say = (text, isProblem = false) => {
    status.textContent = text;
    status.classList.toggle("bad", isProblem);
    mcpApp.reportSize();
  };

  /* Run a function that calls tools; its error is shown. Clicks during the call have no effect. */
  const attempt = async (work) => {
    if (root.getAttribute("aria-busy") === "true") return;
    root.setAttribute("aria-busy", "true");
    try {
      await work();
    } catch (error) {
      say(error.message, true);
    } finally {
      root.removeAttribute("aria-busy");
      mcpApp.reportSize();
    }
  };

  /* Return the declared name of a tool of this server, from its name in a result. */
  const getOwnName = (name) => (name.startsWith(settings.prefix) ? name.slice(settings.prefix.length) : name);
  const callNamed = async (name, args) => {
    const result = await mcpApp.callTool(name, args);
    if (result.isError) throw new Error(mcpApp.getText(result));
    return result;
  };
  const call = async (verb, args = {}) => (await callNamed(base + verb, args)).structuredContent;

  /* Return the description of the model; hosts without calls of tools leave it empty. */
  const describe = async () => {
    if (!description) {
      try {
        description = { ...EMPTY, ...(await call("describe")) };
      } catch (error) {
        description = EMPTY;
        say(error.message, true);
      }
      description.byName = new Map(description.fields.map((field) => [field.name, field]));
      description.verbs = new Set(description.tools.map(getOwnName).filter((name) => name.startsWith(base)));
    }
    return description;
  };
  const can = (verb) => description.verbs.has(base + verb);
  const getTitle = (name) => description.byName.get(name)?.title || name;

  const formatDate = (value, options) => {
    const date = new Date(value);
    if (Number.isNaN(date.getTime())) return String(value);
    try {
      return new Intl.DateTimeFormat(mcpApp.hostContext.locale, options).format(date);
    } catch {
      return new Intl.DateTimeFormat(undefined, options).format(date);
    }
  };
  const format = (value, name) => {
    const field = description.byName.get(name);
    const choice = field?.choices?.find((one) => one.value === value);
    if (choice) return choice.label;
    if (value === null || value === undefined || value === "") return "–";
    if (value === true) return translate("Yes");
    if (value === false) return translate("No");
    if (Array.isArray(value)) return value.map((one) => format(one)).join(", ") || "–";
    if (typeof value === "object") return "label" in value ? String(value.label) : "pk" in value ? String(value.pk) : JSON.stringify(value);
    if (field?.type === "date") return formatDate(value, { dateStyle: "medium", timeZone: "UTC" });
    if (field?.type === "date-time") {
      return formatDate(value, { dateStyle: "medium", timeStyle: "short", timeZone: mcpApp.hostContext.timeZone });
    }
    return String(value);
  };
  const isNumeric = (value) => typeof value === "number";
  const listKeys = (row) => Object.keys(row).filter((key) => key !== "pk" && !key.startsWith("_"));

  /* Show a view: its bar and its content. `back` leads to the view before. */
  const show = (heading, { actions = [], back = null, content = [] }) => {
    const bar = make("div", { className: "bar" });
    if (back) bar.append(makeButton(translate("Back"), back));
    title = make("h1", { textContent: heading, tabIndex: -1 });
    bar.append(title, ...actions);
    root.replaceChildren(bar, ...content);
    say("");
    if (back) title.focus({ preventScroll: true });
  };

  const tellModel = (text) => {
    if (mcpApp.hostCapabilities.updateModelContext) mcpApp.updateModelContext(text).catch(console.error);
  };

  /* Call a function with the result that opened the app, after its arguments. */
  const start = (render) => {
    let input = {};
    mcpApp.onToolInput((args) => (input = args));
    mcpApp.onToolCancelled(() => say(translate("The call was cancelled.")));
    mcpApp.onToolResult((result) => {
      if (result.isError || !result.structuredContent) return say(mcpApp.getText(result), result.isError);
      attempt(async () => {
        await describe();
        await render(result.structuredContent, input);
      });
    });
  };

  window.mcpModel = {
    settings, root, translate, make, makeButton, say, attempt, call, callNamed, describe, can, getTitle, getOwnName, format,
    isNumeric, listKeys, show, tellModel, start, views: {}, base,
  };
})();
