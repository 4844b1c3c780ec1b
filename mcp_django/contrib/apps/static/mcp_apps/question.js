/* The question of a tool, shown at the top of the page. An app may replace `mcpApp.askUser` with a view of its own. */
(() => {
  "use strict";
  const STYLE = `
    .mcp-question { border: 1px solid var(--color-border-primary, #8884); border-radius: var(--border-radius-md, 8px);
      padding: 1rem; margin: 0 0 0.75rem; display: grid; gap: 0.75rem; max-width: 40rem; box-sizing: border-box; }
    .mcp-question:focus { outline: none; }
    .mcp-question p { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
    .mcp-question label, .mcp-question legend { font-weight: 600; display: block; padding: 0; }
    .mcp-question fieldset { border: 0; padding: 0; margin: 0; }
    .mcp-question fieldset label, .mcp-question .mcp-check label { font-weight: 400; display: inline; }
    .mcp-question small { display: block; opacity: 0.75; }
    .mcp-question input:not([type="checkbox"]), .mcp-question select, .mcp-question textarea { font: inherit; width: 100%;
      box-sizing: border-box; padding: 0.375rem; }
    .mcp-question .mcp-error { color: var(--color-text-danger, #c5221f); }
    .mcp-question .mcp-buttons { display: flex; flex-wrap: wrap; gap: 0.5rem; }
    .mcp-question button { font: inherit; padding: 0.375rem 1rem; border-radius: var(--border-radius-sm, 6px); cursor: pointer;
      border: 1px solid var(--color-border-primary, #8886); background: transparent; color: inherit; }
    .mcp-question button.mcp-accept { font-weight: 600; background: var(--color-background-inverse, #0b57d0);
      color: var(--color-text-inverse, #fff); }`;
  const INPUTS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };
  const LONG_TEXT = 200;
  let number = 0;
  let previous = { key: "", values: {} };

  const make = (tag, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  };

  /* Return values and titles of the choices of a schema, or null. */
  const getChoices = (schema) => {
    const titled = schema.oneOf || schema.anyOf;
    if (titled) return titled.map((choice) => [choice.const, choice.title ?? choice.const]);
    return schema.enum ? schema.enum.map((value, index) => [value, schema.enumNames?.[index] ?? value]) : null;
  };

  const makeSelect = (choices, isRequired) => {
    const options = choices.map(([value, title]) => make("option", { value, textContent: title }));
    return make("select", {}, ...(isRequired ? [] : [make("option", { value: "" })]), ...options);
  };

  const makeText = (schema, isRequired) => {
    const isLong = !schema.format && schema.maxLength > LONG_TEXT;
    const input = isLong ? make("textarea", { rows: 3 }) : make("input", { type: INPUTS[schema.format] || "text" });
    input.required = isRequired;
    if (schema.minLength) input.minLength = schema.minLength;
    if (schema.maxLength) input.maxLength = schema.maxLength;
    return input;
  };

  const makeNumber = (schema, isRequired) => {
    const input = make("input", { type: "number", required: isRequired, step: schema.type === "integer" ? "1" : "any" });
    if (schema.minimum !== undefined) input.min = schema.minimum;
    if (schema.maximum !== undefined) input.max = schema.maximum;
    return input;
  };

  /* Build a field: its element, its first control, and functions for its value. `undefined` leaves the value out. */
  const makeField = (name, schema, isRequired, given, texts) => {
    const title = schema.title || name;
    const id = `mcp-field-${++number}`;
    const notes = [];
    if (schema.description) notes.push(make("small", { textContent: schema.description, id: `${id}-help` }));
    const error = make("p", { className: "mcp-error", id: `${id}-error`, textContent: texts.join(" "), hidden: !texts.length });
    const described = [...notes, error].map((note) => note.id).join(" ");
    const value = given ?? schema.default;
    let element, input, getValue;

    if (schema.type === "array") {
      const boxes = (getChoices(schema.items || {}) || []).map(([choice, text]) => {
        const box = make("input", { type: "checkbox", value: choice, checked: (value || []).includes(choice) });
        return [box, make("div", {}, make("label", {}, box, ` ${text}`))];
      });
      element = make("fieldset", {}, make("legend", { textContent: title }), ...boxes.map(([, line]) => line));
      input = boxes[0]?.[0];
      getValue = () => boxes.filter(([box]) => box.checked).map(([box]) => box.value);
    } else if (schema.type === "boolean") {
      input = make("input", { type: "checkbox", id, checked: value === true });
      element = make("div", { className: "mcp-check" }, input, " ", make("label", { htmlFor: id, textContent: title }));
      getValue = () => input.checked;
    } else {
      const choices = getChoices(schema);
      const isNumber = schema.type === "number" || schema.type === "integer";
      input = choices
        ? makeSelect(choices, isRequired)
        : isNumber
          ? makeNumber(schema, isRequired)
          : makeText(schema, isRequired);
      input.id = id;
      if (value !== undefined && value !== null) {
        input.value = schema.format === "date-time" ? String(value).slice(0, 16) : String(value);
      }
      element = make("div", {}, make("label", { htmlFor: id, textContent: title }), input);
      getValue = () => {
        if (input.value === "") return schema.default === undefined ? undefined : isNumber ? null : "";
        return isNumber ? Number(input.value) : input.value;
      };
    }
    if (input) {
      input.setAttribute("aria-describedby", described);
      if (texts.length) input.setAttribute("aria-invalid", "true");
    }
    element.append(...notes, error);
    return { name, element, input, getValue };
  };

  const collect = (fields) => {
    const values = fields.map((field) => [field.name, field.getValue()]);
    return Object.fromEntries(values.filter(([, value]) => value !== undefined));
  };

  /* Show a question, and return the answer of the user: its action and its values. */
  const askUser = (question) =>
    new Promise((resolve) => {
      const { properties = {}, required = [] } = question.schema || {};
      const names = Object.keys(properties);
      const key = names.join();
      const given = question.problem && previous.key === key ? previous.values : {};
      const isChoice = names.length === 1 && properties[names[0]].type === "boolean";
      const fields = isChoice
        ? []
        : names.map((name) =>
            makeField(name, properties[name], required.includes(name), given[name], question.errors?.[name] || []),
          );
      const labels = question.labels || {};
      const message = make("p", { id: `mcp-message-${++number}`, textContent: question.message });
      const problem = make("p", { className: "mcp-error", textContent: question.problem || "" });
      problem.setAttribute("role", "alert");
      problem.hidden = !question.problem;
      const buttons = make("div", { className: "mcp-buttons" });
      const section = make("section", { className: "mcp-question", tabIndex: -1 }, message, problem);
      section.setAttribute("role", "group");
      section.setAttribute("aria-labelledby", message.id);
      section.append(...fields.map((field) => field.element), buttons);

      const finish = (answer) => {
        for (const control of section.querySelectorAll("button, input, select, textarea")) control.disabled = true;
        section.setAttribute("aria-busy", "true");
        resolve({ ...answer, close: () => section.remove() });
      };
      const accept = () => {
        if (!fields.every((field) => !field.input || field.input.reportValidity())) return;
        const values = collect(fields);
        previous = { key, values };
        finish({ action: "accept", values });
      };
      const addButton = (label, className, onClick) => {
        const button = make("button", { type: "button", className, textContent: label });
        button.addEventListener("click", onClick);
        buttons.append(button);
      };
      if (isChoice) {
        addButton(labels.yes || "Yes", "mcp-accept", () => finish({ action: "accept", values: { [names[0]]: true } }));
        addButton(labels.no || "No", "mcp-no", () => finish({ action: "accept", values: { [names[0]]: false } }));
      } else {
        addButton(labels.accept || "Confirm", "mcp-accept", accept);
      }
      addButton(labels.decline || "Decline", "mcp-decline", () => finish({ action: "decline" }));
      /* Hosts may block forms, and then fire no submit event. */
      section.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.isComposing || !event.target.matches("input, select")) return;
        event.preventDefault();
        if (!isChoice) accept();
      });

      document.body.prepend(section);
      section.focus({ preventScroll: true });
      mcpApp.reportSize();
    });

  document.head.append(make("style", { textContent: STYLE }));
  mcpApp.askUser = askUser;
})();
