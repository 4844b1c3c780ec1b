/* One row as a card: the result of `get`, and the row that `create` or `update` has saved. */
(() => {
  "use strict";
  const { translate, make, makeButton, attempt, call, can, format, getTitle, listKeys, show, start, settings } = mcpModel;

  const isInline = (value) => value !== null && typeof value === "object" && Array.isArray(value.items);
  const makeList = (row) => {
    const list = make("dl");
    for (const key of listKeys(row).filter((name) => !isInline(row[name]))) {
      list.append(make("dt", { textContent: getTitle(key) }), make("dd", { textContent: format(row[key], key) }));
    }
    return list;
  };
  const makeInline = (name, { items }) => {
    const keys = items.length ? listKeys(items[0]) : [];
    const lines = items.map((item) => make("tr", {}, ...keys.map((key) => make("td", { textContent: format(item[key]) }))));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...keys.map((key) => make("th", { scope: "col", textContent: key })))), make("tbody", {}, ...lines));
    const area = make("div", { className: "scroll", tabIndex: 0 }, table);
    area.setAttribute("role", "region");
    area.setAttribute("aria-label", name);
    return [make("h2", { textContent: name }), area];
  };
  const getLabel = (row) => {
    const text = listKeys(row).map((key) => row[key]).find((value) => typeof value === "string" && value);
    return text || `${settings.title} ${row.pk ?? ""}`;
  };

  const showCard = (row, back = null, notice = "") => {
    const actions = [];
    if (can("update_form") && can("update") && row.pk !== null && row.pk !== undefined) {
      actions.push(
        makeButton(translate("Change"), () =>
          attempt(async () => mcpModel.views.form(await call("update_form", { pk: row.pk }), () => showCard(row, back))), "main"),
      );
    }
    const inlines = Object.keys(row).filter((name) => isInline(row[name]) && row[name].items.length);
    show(getLabel(row), { actions, back, content: [makeList(row), ...inlines.flatMap((name) => makeInline(name, row[name]))] });
    if (notice) mcpModel.say(notice);
  };

  mcpModel.views.card = showCard;
  if (settings.verb === "get") start((row) => showCard(row));
  if (settings.verb === "create" || settings.verb === "update") {
    start((result) => {
      const notice = translate(result.dry_run ? "This was a trial. Nothing was saved." : "Saved.");
      if (result.item) showCard(result.item, null, notice);
      else mcpModel.say(notice);
    });
  }
})();
