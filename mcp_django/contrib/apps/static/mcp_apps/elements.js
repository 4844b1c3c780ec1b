/* Elements that call tools: buttons, links and forms with `data-mcp-tool`, and HTML of the server in place of theirs.
 *
 * Sandboxes without `allow-forms` fire no submit event, so clicks of buttons and Enter count.
 */
(() => {
  "use strict";
  const OWN = "[data-mcp-tool]";
  const running = new WeakSet();
  let nextId = 1;

  const isSubmit = (element) =>
    element.matches("[data-mcp-submit], button:not([type]), button[type=submit], input[type=submit], input[type=image]");

  /* Return the value of a control in the JSON type of its field; undefined leaves the argument out. */
  const convert = (control, type) => {
    const { value } = control;
    if (type === "boolean") {
      if (control.type === "checkbox") return control.checked;
      return value === "true" ? true : value === "false" ? false : undefined;
    }
    if (type === "integer" || type === "number") {
      const number = Number(value);
      return value.trim() === "" ? undefined : Number.isFinite(number) ? number : value;
    }
    return value === "" && (control.dataset.mcpOmit ?? control.closest("[data-mcp-field]")?.dataset.mcpOmit) != null
      ? undefined
      : value;
  };
  const getType = (control) => {
    const declared = control.dataset.mcpType || control.closest("[data-mcp-field]")?.dataset.mcpType;
    if (declared) return declared;
    if (control.type === "select-multiple") return "array";
    return { number: "number", range: "number", checkbox: "boolean" }[control.type] || "string";
  };

  const collect = (form, button) => {
    const values = {};
    for (const control of form.elements) {
      const name = control.closest("[data-mcp-field]")?.dataset.mcpField || control.name;
      const isChoice = control.type === "radio" || control.type === "checkbox";
      const type = name && getType(control);
      if (!name || control.disabled || ["submit", "button", "image", "reset", "file"].includes(control.type)) continue;
      if (type === "array") {
        values[name] = values[name] || [];
        const chosen = control.selectedOptions ? [...control.selectedOptions] : [control];
        values[name].push(...chosen.filter((one) => !isChoice || one.checked).map((one) => one.value));
        continue;
      }
      if (control.type === "radio" && !control.checked) continue;
      if (isChoice && type !== "boolean" && !control.checked) continue;
      const value = convert(control, type);
      if (value === undefined) continue;
      /* Several controls of one field are parts of a date and time. */
      values[name] = name !== control.name && typeof values[name] === "string" ? `${values[name]}T${value}` : value;
    }
    if (button?.name) values[button.name] = button.value;
    return values;
  };

  const swap = (target, html, mode) => {
    if (mode === "outer") target.outerHTML = html;
    else if (mode === "append") target.insertAdjacentHTML("beforeend", html);
    else target.innerHTML = html;
    window.mcpApp.reportSize();
  };
  /* Return the HTML of a result; null without one, or if another server sent it. */
  const getHTML = (result) => {
    const html = result?.structuredContent?.html;
    return typeof html === "string" && window.mcpApp.isOwnResult(result) ? html : null;
  };

  const getErrorList = (container, before) => {
    let list = container.querySelector("[data-mcp-errors]");
    if (!list) {
      list = document.createElement("ul");
      list.dataset.mcpErrors = "";
      list.className = "errorlist";
      if (before) container.prepend(list);
      else container.append(list);
    }
    list.id = list.id || `mcp-errors-${nextId++}`;
    return list;
  };
  const fill = (list, texts) => {
    list.replaceChildren(
      ...texts.map((text) => Object.assign(document.createElement("li"), { textContent: String(text) })),
    );
    list.hidden = texts.length === 0;
  };
  const getFields = (form) => {
    const fields = new Map();
    for (const control of form.elements) {
      if (["submit", "button", "reset", "image"].includes(control.type)) continue;
      const container = control.closest("[data-mcp-field]");
      const name = container?.dataset.mcpField || control.name;
      if (!name || control.type === "hidden") continue;
      const field = fields.get(name) || { container: container || control.parentElement, controls: [] };
      field.controls.push(control);
      fields.set(name, field);
    }
    return fields;
  };

  /* Show the messages of each field beside it, others at the top, and focus the first wrong field. */
  const showErrors = (form, errors) => {
    const fields = getFields(form);
    const rest = [];
    for (const [name, texts] of Object.entries(errors)) if (!fields.has(name)) rest.push(...[].concat(texts));
    let first = null;
    for (const [name, { container, controls }] of fields) {
      const texts = Object.hasOwn(errors, name) ? [].concat(errors[name]) : [];
      if (!texts.length && !container.querySelector("[data-mcp-errors]")) continue;
      const list = getErrorList(container, false);
      fill(list, texts);
      for (const control of controls) {
        const described = (control.getAttribute("aria-describedby") || "").split(" ").filter((id) => id && id !== list.id);
        if (texts.length) described.push(list.id);
        if (described.length) control.setAttribute("aria-describedby", described.join(" "));
        else control.removeAttribute("aria-describedby");
        if (texts.length) control.setAttribute("aria-invalid", "true");
        else control.removeAttribute("aria-invalid");
      }
      first = first || (texts.length ? controls[0] : null);
    }
    const top = [...form.querySelectorAll("[data-mcp-errors]")].find((list) => !list.closest("[data-mcp-field]"));
    if (rest.length || top) {
      const list = top || getErrorList(form, true);
      list.setAttribute("role", "alert");
      fill(list, rest);
      if (rest.length && !first) {
        list.tabIndex = -1;
        list.focus();
      }
    }
    first?.focus();
    window.mcpApp.reportSize();
  };

  /* Call the tool of an element; returns its result, or undefined if the values are incomplete. */
  const run = async (element, button) => {
    if (running.has(element)) return undefined;
    const form = element instanceof HTMLFormElement ? element : null;
    if (form && !form.noValidate && !form.reportValidity()) return undefined;
    const { mcpTool, mcpArgs, mcpNest, mcpTarget, mcpSwap, mcpReset } = element.dataset;
    const field = !form && element.name && "value" in element ? { [element.name]: convert(element, getType(element)) } : {};
    const values = form ? collect(form, button) : field;
    const args = { ...JSON.parse(mcpArgs || "{}"), ...(mcpNest ? { [mcpNest]: values } : values) };
    const dispatch = (name, detail) =>
      element.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, cancelable: true }));
    if (!dispatch("mcp:call", { tool: mcpTool, arguments: args })) return undefined;

    const status = form?.querySelector("[data-mcp-status]");
    if (status) status.textContent = "";
    running.add(element);
    element.setAttribute("aria-busy", "true");
    try {
      const result = await window.mcpApp.callTool(mcpTool, args);
      if (result?.isError) {
        const errors = window.mcpApp.getErrors(result) || { __all__: [window.mcpApp.getText(result)] };
        if (form) showErrors(form, errors);
        dispatch("mcp:error", { result, errors });
        return result;
      }
      if (form) showErrors(form, window.mcpApp.getErrors(result) || {});
      const target = mcpTarget ? document.querySelector(mcpTarget) : null;
      if (target && getHTML(result) !== null) swap(target, getHTML(result), mcpSwap);
      else if (status) {
        status.textContent = status.dataset.mcpStatus;
        window.mcpApp.reportSize();
      }
      if (form && mcpReset !== undefined) form.reset();
      dispatch("mcp:result", { result });
      return result;
    } catch (error) {
      const errors = { __all__: [error.message] };
      if (form) showErrors(form, errors);
      dispatch("mcp:error", { error, errors });
      return undefined;
    } finally {
      running.delete(element);
      element.removeAttribute("aria-busy");
    }
  };

  const handle = (event, element, button) => {
    event.preventDefault();
    run(element, button);
  };
  document.addEventListener("click", (event) => {
    const clicked = event.target.closest?.("button, input, a, [data-mcp-tool], [data-mcp-submit]");
    if (event.defaultPrevented || !clicked || clicked.disabled) return;
    if (clicked.form?.matches(OWN) && isSubmit(clicked) && !clicked.matches(OWN)) {
      return handle(event, clicked.form, clicked);
    }
    const isControl = clicked.matches("input, select, textarea, form") && !isSubmit(clicked);
    if (clicked.matches(OWN) && !isControl) return handle(event, clicked, clicked);
    const link = clicked.closest("a[href]");
    if (link && /^https?:/.test(link.protocol)) {
      event.preventDefault();
      window.mcpApp.openLink(link.href).catch((error) => console.error(error));
    }
  });
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    const isPlain = !event.isComposing && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
    if (event.key !== "Enter" || !isPlain || event.defaultPrevented || !(target instanceof HTMLInputElement)) return;
    if (isSubmit(target) || ["button", "reset", "file", "color"].includes(target.type)) return;
    if (target.form?.matches(OWN)) handle(event, target.form, null);
  });
  document.addEventListener("submit", (event) => {
    if (event.target.matches(OWN) && !event.defaultPrevented) handle(event, event.target, event.submitter);
  });
  document.addEventListener("change", (event) => {
    const element = event.target.closest("[data-mcp-trigger=change]");
    if (element?.matches(OWN)) run(element, null);
  });

  window.mcpApp.onToolResult((result) => {
    const html = result.isError ? null : getHTML(result);
    const fillAll = () => {
      for (const element of document.querySelectorAll("[data-mcp-partial]")) swap(element, html, element.dataset.mcpSwap);
    };
    if (html === null) return;
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", fillAll);
    else fillAll();
  });
  Object.assign(window.mcpApp, { run, showErrors });
})();
