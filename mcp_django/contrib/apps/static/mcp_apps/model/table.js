/* Rows as a table, with search, filters, order and pages. Each change calls the tool `list` of the model. */
(() => {
  "use strict";
  const { translate, make, makeButton, attempt, call, can, describe, format, getTitle, isNumeric, listKeys, show, start } = mcpModel;
  const LOOKUPS = [["icontains", "contains"], ["exact", "is"], ["gte", "at least"], ["lte", "at most"], ["isnull", "is empty"]];
  const INPUTS = { integer: "number", number: "number", decimal: "number", date: "date", "date-time": "datetime-local", time: "time" };
  const state = { given: {}, search: "", order: null, filters: [], cursors: [undefined], rows: [], next: null, total: null };
  let description;

  const buildQuery = () => {
    const conditions = state.filters.map(({ name, lookup, value }) => ({ [lookup === "exact" ? name : `${name}__${lookup}`]: value }));
    if (state.given.filters) conditions.unshift(state.given.filters);
    const filters = conditions.length > 1 ? { and: conditions } : conditions[0];
    const order = state.order ? [state.order] : state.given.order_by;
    const { limit, fields } = state.given;
    return {
      ...(filters && { filters }), ...(state.search && { search: state.search }), ...(order && { order_by: order }),
      ...(limit && { limit }), ...(fields && { fields }),
    };
  };

  const load = (cursors) =>
    attempt(async () => {
      const cursor = cursors.at(-1);
      const page = await call("list", { ...buildQuery(), ...(cursor ? { cursor } : { with_total: true }) });
      state.cursors = cursors;
      take(page);
      render();
    });
  const reload = () => load([undefined]);
  const take = (page) => {
    state.rows = page.items;
    state.next = page.next_cursor;
    if (state.cursors.length === 1 || typeof page.total === "number") state.total = page.total ?? null;
  };

  const getOrder = (name) => (state.order === name ? "ascending" : state.order === `-${name}` ? "descending" : "none");
  const makeHeader = (name) => {
    const cell = make("th", { scope: "col" });
    if (!description.byName.get(name)?.orderable) return make("th", { scope: "col", textContent: getTitle(name) });
    const order = getOrder(name);
    cell.setAttribute("aria-sort", order);
    const arrow = { ascending: " ▲", descending: " ▼", none: "" }[order];
    cell.append(
      makeButton(getTitle(name) + arrow, () => {
        state.order = order === "ascending" ? `-${name}` : name;
        reload();
      }, "text"),
    );
    return cell;
  };

  const openRow = (pk) => attempt(async () => mcpModel.views.card(await call("get", { pk }), back));
  const back = () => reload();

  const makeTable = () => {
    const names = state.rows.length ? listKeys(state.rows[0]) : description.fields.filter((field) => field.shown).map((field) => field.name);
    const shown = names.length ? names : ["pk"];
    const body = make("tbody");
    for (const row of state.rows) {
      const line = make("tr");
      shown.forEach((name, place) => {
        const text = format(row[name], name);
        if (place === 0) {
          const head = make("th", { scope: "row" });
          head.append(can("get") ? makeButton(text, () => openRow(row.pk), "text") : text);
          line.append(head);
        } else line.append(make("td", { className: isNumeric(row[name]) ? "number" : "", textContent: text }));
      });
      body.append(line);
    }
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...shown.map(makeHeader))), body);
    const area = make("div", { className: "scroll", tabIndex: 0 }, table);
    area.setAttribute("role", "region");
    area.setAttribute("aria-label", description.title);
    return area;
  };

  /* Return a control for the value of a filter, and a function that reads it. */
  const makeValue = (field, lookup) => {
    const choices = lookup === "isnull" || field.type === "boolean"
      ? [[true, translate("Yes")], [false, translate("No")]]
      : field.choices && lookup === "exact" ? field.choices.map(({ value, label }) => [value, label]) : null;
    if (choices) {
      const select = make("select", { "aria-label": translate("Value") });
      choices.forEach(([, label], place) => select.append(make("option", { value: String(place), textContent: label })));
      return [select, () => choices[Number(select.value)]];
    }
    const type = INPUTS[field.type] || "text";
    const input = make("input", { type, "aria-label": translate("Value"), ...(type === "number" && { step: "any" }) });
    return [input, () => {
      if (input.value === "") return null;
      if (field.type === "integer" || field.type === "number") return [Number(input.value), input.value];
      if (type === "datetime-local") return [new Date(input.value).toISOString(), input.value];
      return [input.value, input.value];
    }];
  };

  const makeFilters = () => {
    const usable = description.fields
      .filter((field) => !field.refers_to)
      .map((field) => ({ ...field, offered: LOOKUPS.filter(([lookup]) => (field.lookups || []).includes(lookup)) }))
      .filter((field) => field.offered.length);
    if (!usable.length) return null;
    const bar = make("div", { className: "bar" });
    state.filters.forEach((filter, place) => {
      const lookup = translate(LOOKUPS.find(([name]) => name === filter.lookup)[1]);
      const chip = makeButton(`${getTitle(filter.name)} ${lookup} ${filter.label} ✕`, () => {
        state.filters.splice(place, 1);
        reload();
      }, "chip");
      chip.setAttribute("aria-label", translate("Remove the filter {filter}", { filter: `${getTitle(filter.name)} ${lookup} ${filter.label}` }));
      bar.append(chip);
    });
    const names = make("select", { "aria-label": translate("Field") });
    for (const field of usable) names.append(make("option", { value: field.name, textContent: field.title }));
    const lookups = make("select", { "aria-label": translate("Condition") });
    const slot = make("span");
    let read;
    const getField = () => usable.find((field) => field.name === names.value);
    const offerValue = () => {
      const [control, reader] = makeValue(getField(), lookups.value);
      read = reader;
      slot.replaceChildren(control);
    };
    const offerLookups = () => {
      lookups.replaceChildren(...getField().offered.map(([value, text]) => make("option", { value, textContent: translate(text) })));
      offerValue();
    };
    names.addEventListener("change", offerLookups);
    lookups.addEventListener("change", offerValue);
    const add = () => {
      const found = read();
      if (!found) return;
      state.filters.push({ name: names.value, lookup: lookups.value, value: found[0], label: found[1] });
      reload();
    };
    bar.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.matches("input")) add();
    });
    offerLookups();
    bar.append(names, lookups, slot, makeButton(translate("Filter"), add));
    return make("details", { open: state.filters.length > 0 }, make("summary", { textContent: translate("Filters") }), bar);
  };

  const render = () => {
    const actions = [];
    if (description.search.length) {
      const input = make("input", { type: "search", value: state.search, "aria-label": translate("Search"), placeholder: translate("Search") });
      input.addEventListener("keydown", (event) => {
        if (event.key !== "Enter") return;
        state.search = input.value.trim();
        reload();
      });
      actions.push(input);
    }
    if (can("create_form") && can("create")) {
      actions.push(makeButton(translate("Add"), () => attempt(async () => mcpModel.views.form(await call("create_form"), back)), "main"));
    }
    const previous = makeButton(translate("Previous"), () => load(state.cursors.slice(0, -1)));
    previous.disabled = state.cursors.length < 2;
    const next = makeButton(translate("Next"), () => load([...state.cursors, state.next]));
    next.disabled = !state.next;
    const total = state.total === null ? "" : translate("{number} in all", { number: state.total });
    const paging = make("div", { className: "bar" }, previous, next, make("span", { textContent: translate("Page {number}", { number: state.cursors.length }) }), make("span", { textContent: total }));
    paging.style.marginTop = ".6rem";
    show(description.title, { actions, content: [makeFilters(), makeTable(), paging].filter(Boolean) });
    if (!state.rows.length) mcpModel.say(translate("There are no rows."));
  };

  mcpModel.views.table = render;
  if (mcpModel.settings.verb === "list") {
    start(async (result, input) => {
      description = await describe();
      state.given = input;
      state.search = input.search || "";
      state.order = input.order_by?.length === 1 ? input.order_by[0] : null;
      state.cursors = [input.cursor];
      take(result);
      render();
    });
  }
})();
