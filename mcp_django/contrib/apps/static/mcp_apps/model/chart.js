/* Groups of rows as a chart, drawn by uPlot, and as a table with the same values. */
(() => {
  "use strict";
  const { translate, make, attempt, call, describe, format, getTitle, show, start } = mcpModel;
  const HEIGHT_PIXELS = 280;
  const MAX_LABEL_CHARACTERS = 14;
  const COLORS = ["#0b57d0", "#b3261e", "#146c2e", "#8430ce", "#a8570a", "#006a6a"];
  const DARK_COLORS = ["#8ab4f8", "#ff9d97", "#7bd88f", "#d0aaff", "#f6b26b", "#56c5bd"];
  const state = { given: {}, groups: [], names: [], metrics: [], truncated: false, description: null };
  let plot = null;

  const isDark = () => document.documentElement.dataset.theme === "dark";
  const readStyle = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#59636e";
  const toNumber = (value) => (value === null || value === undefined || value === "" ? null : Number(value));
  const shorten = (text) => (text.length > MAX_LABEL_CHARACTERS ? `${text.slice(0, MAX_LABEL_CHARACTERS - 1)}…` : text);
  const getLabel = (group) => state.names.map((name) => format(group[name], name)).join(" · ") || translate("All rows");

  /* Dates and numbers have a scale of their own; other groups are places beside each other. */
  const getScale = () => {
    if (state.names.length !== 1) return null;
    const values = state.groups.map((group) => group[state.names[0]]);
    if (values.length > 2 && values.every((value) => typeof value === "number")) return { time: false, values };
    const dates = values.map((value) => (typeof value === "string" && /^\d{4}-\d\d-\d\d/.test(value) ? Date.parse(value) / 1000 : NaN));
    return values.length > 2 && dates.every(Number.isFinite) ? { time: true, values: dates } : null;
  };

  const draw = (area) => {
    plot?.destroy();
    plot = null;
    area.replaceChildren();
    const metrics = state.metrics.filter((name) => state.groups.some((group) => Number.isFinite(toNumber(group[name]))));
    if (!metrics.length || !state.groups.length) return;
    const scale = getScale();
    const order = state.groups.map((_, place) => place);
    if (scale) order.sort((one, other) => scale.values[one] - scale.values[other]);
    const x = order.map((place) => (scale ? scale.values[place] : place));
    const labels = state.groups.map(getLabel);
    const colors = isDark() ? DARK_COLORS : COLORS;
    const axis = { stroke: readStyle("--soft"), grid: { stroke: readStyle("--edge"), width: 0.5 }, ticks: { stroke: readStyle("--edge"), width: 0.5 } };
    const bars = scale ? undefined : uPlot.paths.bars({ size: [0.7, 60] });
    const series = metrics.map((name, place) => ({
      label: name, stroke: colors[place % colors.length], width: 2, points: { show: Boolean(scale) },
      ...(bars && { paths: bars, fill: `${colors[place % colors.length]}99` }),
    }));
    const categories = {
      ...axis, incrs: [1, 2, 5, 10, 20, 50, 100], space: 70,
      values: (_, splits) => splits.map((place) => (Number.isInteger(place) && labels[place] !== undefined ? shorten(labels[place]) : "")),
    };
    const options = {
      width: Math.max(200, area.clientWidth), height: HEIGHT_PIXELS,
      scales: { x: scale ? { time: scale.time } : { time: false, range: [-0.6, x.length - 0.4] }, y: { range: (_, least, most) => uPlot.rangeNum(Math.min(0, least ?? 0), most ?? 1, 0.1, true) } },
      series: [{ label: state.names.map(getTitle).join(" · "), value: (_, value) => (value === null ? "–" : scale ? format(state.groups[order[x.indexOf(value)]]?.[state.names[0]], state.names[0]) : labels[value] ?? "–") }, ...series],
      axes: [scale ? axis : categories, { ...axis, size: 64 }],
      cursor: { drag: { x: false, y: false } },
      legend: { live: false }, /* Without a pointer on a bar, each value would be "--". */
    };
    plot = new uPlot(options, [x, ...metrics.map((name) => order.map((place) => toNumber(state.groups[place][name])))], area);
    /* The table below has the same values. */
    area.setAttribute("role", "img");
    area.setAttribute("aria-label", `${metrics.join(", ")}: ${state.names.map(getTitle).join(" · ")}`);
  };

  const makeTable = () => {
    const head = [...state.names, ...state.metrics].map((name) => make("th", { scope: "col", textContent: getTitle(name) }));
    const lines = state.groups.map((group) =>
      make("tr", {}, ...state.names.map((name) => make("th", { scope: "row", textContent: format(group[name], name) })),
        ...state.metrics.map((name) => make("td", { className: "number", textContent: format(group[name]) }))));
    const area = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)));
    area.setAttribute("role", "region");
    area.setAttribute("aria-label", translate("Values"));
    return make("details", { open: state.groups.length <= 1 }, make("summary", { textContent: translate("Values") }), area);
  };

  const makeGrouping = () => {
    const fields = state.description.fields.filter((field) => field.orderable);
    if (!fields.length || state.names.length > 1) return [];
    const select = make("select");
    if (!state.names.length) select.append(make("option", { value: "", textContent: translate("All rows") }));
    const known = fields.some((field) => field.name === state.names[0]);
    if (state.names.length && !known) select.append(make("option", { value: state.names[0], textContent: getTitle(state.names[0]) }));
    for (const field of fields) select.append(make("option", { value: field.name, textContent: field.title }));
    select.value = state.names[0] || "";
    select.addEventListener("change", () =>
      attempt(async () => {
        const { order_by: _order, having: _having, ...rest } = state.given;
        const args = { ...rest, group_by: [select.value] };
        take(await call("aggregate", args), args);
        render();
      }));
    return [make("label", {}, translate("Group by"), select)];
  };

  const take = (result, args) => {
    state.given = args;
    state.groups = result.groups;
    state.truncated = result.truncated;
    state.names = args.group_by || [];
    state.metrics = Object.keys(result.groups[0] || {}).filter((name) => !state.names.includes(name));
  };

  const render = () => {
    const area = make("div", { id: "chart" });
    show(state.description.title, { actions: makeGrouping(), content: [area, makeTable()] });
    draw(area);
    if (!state.groups.length) mcpModel.say(translate("There are no rows."));
    else if (state.truncated) mcpModel.say(translate("There are more groups than these."));
  };

  let width = 0;
  let theme = "";
  const redraw = () => {
    const area = document.getElementById("chart");
    if (!area || (width === area.clientWidth && theme === document.documentElement.dataset.theme)) return;
    width = area.clientWidth;
    theme = document.documentElement.dataset.theme;
    if (state.groups.length) draw(area);
  };
  /* A chart that is drawn within the observer changes the observed size again. */
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(mcpModel.root);
  mcpApp.onContextChanged(redraw);

  mcpModel.views.chart = render;
  start(async (result, input) => {
    state.description = await describe();
    take(result, input);
    render();
  });
})();
