/* A form that adds or changes a row, from the result of `create_form` or `update_form`. */
(() => {
  "use strict";
  const { translate, make, makeButton, attempt, call, callNamed, getOwnName, show, start, settings, tellModel } = mcpModel;
  const FORMATS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local", time: "time" };
  const LONG_TEXT = 200;
  const SEARCH_DELAY_MS = 250;
  const MAX_SUGGESTIONS = 10;
  let number = 0;

  /* Return the types, the choices and the format of a field, whose schema may permit null. */
  const readSchema = ({ schema, choices }) => {
    const branches = schema.anyOf || [schema];
    const types = new Set(branches.flatMap((branch) => branch.type || []));
    const merged = Object.assign({}, ...branches.filter((branch) => branch.type !== "null"), schema);
    const titled = choices ? choices.map(({ value, label }) => [value, label || String(value) || "–"]) : null;
    return { types, choices: titled, merged, isNullable: types.has("null") };
  };

  const toLocal = (value) => {
    const date = new Date(value);
    if (Number.isNaN(date.getTime())) return "";
    return new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  };

  /* Offer rows of the related model while the user types. The chosen row is sent by its key. */
  const addSearch = (input, field) => {
    const keys = new Map();
    const list = make("datalist", { id: `${input.id}-rows` });
    let timer = 0;
    if (field.label) keys.set(field.label, field.value);
    input.setAttribute("list", list.id);
    input.autocomplete = "off";
    input.addEventListener("input", () => {
      clearTimeout(timer);
      if (!input.value.trim() || keys.has(input.value)) return;
      timer = setTimeout(async () => {
        try {
          const found = await callNamed(getOwnName(field.search_tool), { search: input.value.trim(), limit: MAX_SUGGESTIONS });
          const options = found.structuredContent.items.map((row) => {
            const texts = Object.entries(row).filter(([key, value]) => key !== "pk" && typeof value === "string" && value);
            const label = `${texts.slice(0, 3).map(([, value]) => value).join(" · ") || row.pk} (${row.pk})`;
            keys.set(label, row.pk);
            return make("option", { value: label });
          });
          list.replaceChildren(...options);
        } catch (error) {
          console.error(error);
        }
      }, SEARCH_DELAY_MS);
    });
    return [list, () => keys.get(input.value)];
  };

  const makeControl = (field) => {
    const { types, choices, merged, isNullable } = readSchema(field);
    const id = `field-${++number}`;
    const given = "suggested" in field ? field.suggested : field.value;
    const shown = given === null || given === undefined ? "" : given;
    let input;
    let getValue;
    let extra = null;
    if (types.has("boolean") && !isNullable) {
      input = make("input", { type: "checkbox", checked: given === true });
      getValue = () => input.checked;
    } else if (choices && types.has("array")) {
      const chosen = Array.isArray(given) ? given : [];
      input = make("select", { multiple: true });
      choices.forEach(([value, text], place) =>
        input.append(make("option", { value: String(place), textContent: text, selected: chosen.includes(value) })),
      );
      getValue = () => Array.from(input.selectedOptions, (option) => choices[Number(option.value)][0]);
    } else if (choices || types.has("boolean")) {
      const listed = choices || [[true, translate("Yes")], [false, translate("No")]];
      const all = listed.filter(([value]) => value !== "" || !isNullable);
      input = make("select");
      if (isNullable || given === null || given === undefined) input.append(make("option", { value: "", textContent: "–" }));
      all.forEach(([value, text], place) => input.append(make("option", { value: String(place), textContent: text, selected: value === given })));
      getValue = () => (input.value === "" ? null : all[Number(input.value)][0]);
    } else if (types.has("array")) {
      input = make("input", { type: "text", value: Array.isArray(given) ? given.join(", ") : "" });
      const isNumber = merged.items?.type === "integer";
      getValue = () => input.value.split(",").map((one) => one.trim()).filter(Boolean).map((one) => (isNumber && /^-?\d+$/.test(one) ? Number(one) : one));
    } else if (types.has("object") || types.size === 0) {
      input = make("textarea", { rows: 4, value: shown === "" ? "" : JSON.stringify(given, null, 2) });
      getValue = () => {
        if (input.value.trim() === "") return null;
        try {
          return JSON.parse(input.value);
        } catch {
          return input.value;
        }
      };
    } else {
      const isNumber = types.has("integer") || types.has("number");
      const isLong = types.has("string") && !merged.format && (!merged.maxLength || merged.maxLength > LONG_TEXT) && !isNumber;
      const type = field.search_tool ? "text" : isNumber ? "number" : FORMATS[merged.format] || "text";
      input = isLong && !field.search_tool ? make("textarea", { rows: 3 }) : make("input", { type });
      if (type === "number") input.step = types.has("number") ? "any" : "1";
      if (merged.maxLength && !field.search_tool) input.maxLength = merged.maxLength;
      input.value = type === "datetime-local" && shown ? toLocal(shown) : field.label && !("suggested" in field) ? field.label : String(shown);
      input.id = id;
      let find = () => undefined;
      if (field.search_tool) [extra, find] = addSearch(input, field);
      getValue = () => {
        const text = input.value;
        const key = find();
        if (key !== undefined) return key;
        if (text === "") return isNullable || isNumber || type !== "text" || field.search_tool ? null : "";
        if (type === "datetime-local") return new Date(text).toISOString();
        return isNumber && Number.isFinite(Number(text)) ? Number(text) : text;
      };
    }
    input.id = id;
    input.name = field.name;
    if (field.required) input.setAttribute("aria-required", "true");
    const start = "suggested" in field ? undefined : JSON.stringify(getValue());
    return { field, id, input, extra, getValue, isChanged: () => JSON.stringify(getValue()) !== start };
  };

  const makeField = ({ field, id, input, extra }) => {
    const container = make("div", { className: "mcp-field" });
    container.dataset.mcpField = field.name;
    const label = make("label", { htmlFor: id, textContent: field.required ? `${field.title} *` : field.title });
    container.append(label, input);
    if (extra) container.append(extra);
    if (field.schema.description && !field.search_tool) container.append(make("small", { textContent: field.schema.description }));
    return container;
  };

  const showForm = (form, back = null) => {
    const isNew = form.pk === undefined;
    const controls = form.fields.map(makeControl);
    const element = make("form", { noValidate: true }, ...controls.map(makeField));
    const save = () =>
      attempt(async () => {
        const values = {};
        for (const control of controls) {
          const value = control.getValue();
          if (isNew ? value !== null && value !== "" && !(Array.isArray(value) && !value.length) : control.isChanged()) {
            values[control.field.name] = value;
          }
        }
        const missing = controls.filter(({ field }) => field.required && !(field.name in values)).map(({ field }) => field.name);
        if (missing.length) {
          return mcpApp.showErrors(element, Object.fromEntries(missing.map((name) => [name, [translate("This field is required.")]])));
        }
        if (!isNew && !Object.keys(values).length) return mcpModel.say(translate("Nothing was changed."));
        const args = isNew ? { values } : { pk: form.pk, values, ...(form.if_match && { if_match: form.if_match }) };
        const result = await mcpApp.callTool(getOwnName(form.tool), args);
        if (result.isError) {
          const errors = mcpApp.getErrors(result) || { __all__: [mcpApp.getText(result)] };
          return mcpApp.showErrors(element, errors);
        }
        tellModel(`${translate("The user saved:")} ${mcpApp.getText(result)}`);
        const row = result.structuredContent?.item;
        if (row) mcpModel.views.card(row, back, translate("Saved."));
        else if (back) back();
        else mcpModel.say(translate("Saved."));
      });
    /* Sandboxes without `allow-forms` fire no submit event. */
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || !event.target.matches("input")) return;
      event.preventDefault();
      save();
    });
    element.addEventListener("submit", (event) => event.preventDefault());
    element.append(makeButton(translate("Save"), save, "main"));
    const heading = isNew ? translate("Add: {name}", { name: form.title }) : translate("Change: {name}", { name: form.title });
    show(heading, { back, content: [element] });
  };

  mcpModel.views.form = showForm;
  if (settings.verb === "create_form" || settings.verb === "update_form") start((form) => showForm(form));
})();
