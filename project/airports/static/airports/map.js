// Draws airports on a plain grid: no tiles, so nothing is loaded. Faint squares are places that have airports.
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 640, HEIGHT = 400, PADDING = 36, MAX_NAMES = 12, MIN_DEGREES = 1;
  const STEPS = [45, 30, 15, 10, 5, 2, 1, 0.5, 0.2];
  const svg = document.getElementById("map");
  const list = document.getElementById("list");
  const details = document.getElementById("details");
  const status = document.getElementById("status");

  const draw = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    svg.append(element);
    return element;
  };

  /* Airports on both sides of the antimeridian are drawn side by side. */
  const unwrap = (airports) => {
    const longitudes = airports.map((airport) => airport.longitude);
    const span = (values) => Math.max(...values) - Math.min(...values);
    const crosses = span(longitudes.map((longitude) => (longitude < 0 ? longitude + 360 : longitude))) < span(longitudes);
    return (longitude) => (crosses && longitude < 0 ? longitude + 360 : longitude);
  };

  /* Return the box around the airports, in the proportions of the map, and the projection. */
  const frame = (airports, place) => {
    const lat = airports.map((airport) => airport.latitude), lon = airports.map((airport) => place(airport.longitude));
    const middle = { lat: (Math.min(...lat) + Math.max(...lat)) / 2, lon: (Math.min(...lon) + Math.max(...lon)) / 2 };
    const narrowing = Math.max(0.2, Math.cos((middle.lat * Math.PI) / 180));
    const high = Math.max(MIN_DEGREES, Math.max(...lat) - Math.min(...lat));
    const wide = Math.max(MIN_DEGREES, (Math.max(...lon) - Math.min(...lon)) * narrowing);
    const scale = Math.min((WIDTH - 2 * PADDING) / wide, (HEIGHT - 2 * PADDING) / high);
    const x = (longitude) => WIDTH / 2 + (longitude - middle.lon) * narrowing * scale;
    const y = (latitude) => HEIGHT / 2 - (latitude - middle.lat) * scale;
    const halfWide = WIDTH / 2 / scale / narrowing, halfHigh = HEIGHT / 2 / scale;
    return {
      x, y, scale: scale * narrowing, west: middle.lon - halfWide, east: middle.lon + halfWide,
      south: Math.max(-90, middle.lat - halfHigh), north: Math.min(90, middle.lat + halfHigh),
    };
  };

  const drawGrid = (box) => {
    const step = STEPS.find((one) => (box.east - box.west) / one >= 4) ?? STEPS.at(-1);
    const name = (value, letters) => `${Math.abs(Number(value.toFixed(1)))}° ${value < 0 ? letters[1] : letters[0]}`;
    for (let lon = Math.ceil(box.west / step) * step; lon < box.east; lon += step) {
      draw("line", { class: "grid", x1: box.x(lon), x2: box.x(lon), y1: 0, y2: HEIGHT });
      const label = draw("text", { x: box.x(lon) + 3, y: HEIGHT - 5 }, name(lon > 180 ? lon - 360 : lon, "EW"));
      if (box.x(lon) + 3 + label.getComputedTextLength() > WIDTH) {
        label.setAttribute("x", box.x(lon) - 3);
        label.setAttribute("text-anchor", "end");
      }
    }
    for (let lat = Math.ceil(box.south / step) * step; lat < box.north; lat += step) {
      draw("line", { class: "grid", x1: 0, x2: WIDTH, y1: box.y(lat), y2: box.y(lat) });
      draw("text", { x: 4, y: box.y(lat) - 3 }, name(lat, "NS"));
    }
  };

  const drawKnown = async (box, place) => {
    const normal = (lon) => (lon > 180 ? lon - 360 : lon < -180 ? lon + 360 : lon);
    const wraps = box.east - box.west >= 360;
    const args = {
      south: box.south, north: box.north,
      west: wraps ? -180 : normal(box.west), east: wraps ? 180 : normal(box.east),
    };
    const result = await mcpApp.callTool("airport_cells", args).catch(() => null);
    if (!result || result.isError) return;
    const { degrees, cells } = result.structuredContent;
    const width = Math.max(1, degrees * box.scale * 0.8);
    const path = cells.map(([lat, lon]) => `M${box.x(place(lon)).toFixed(1)} ${box.y(lat).toFixed(1)}h${width}v${width}h-${width}z`);
    svg.prepend(draw("path", { class: "known", d: path.join("") }));
  };

  const choose = (airport, button, circle) => {
    for (const one of list.querySelectorAll("button")) one.setAttribute("aria-pressed", String(one === button));
    for (const one of svg.querySelectorAll(".place")) one.classList.toggle("chosen", one === circle);
    const rows = {
      Name: airport.name, City: [airport.city, airport.region, airport.country].filter(Boolean).join(", "),
      Codes: [airport.iata, airport.icao].filter(Boolean).join(", "), Elevation: `${airport.elevation_ft} ft`,
      "Time zone": airport.timezone, Distance: airport.distance === undefined ? "" : `${airport.distance} km`,
    };
    details.replaceChildren();
    for (const [term, value] of Object.entries(rows).filter((row) => row[1])) {
      details.append(Object.assign(document.createElement("dt"), { textContent: term }));
      details.append(Object.assign(document.createElement("dd"), { textContent: value }));
    }
    details.hidden = false;
    mcpApp.reportSize();
    if (mcpApp.hostCapabilities.updateModelContext) {
      mcpApp.updateModelContext(`The user has chosen ${airport.name} (${airport.iata ?? airport.icao}) on the map.`).catch(() => {});
    }
  };

  const show = (airports) => {
    svg.replaceChildren();
    list.replaceChildren();
    details.hidden = true;
    status.textContent = airports.length === 1 ? "1 airport" : `${airports.length} airports`;
    svg.style.display = airports.length ? "" : "none";
    if (!airports.length) return;
    const place = unwrap(airports), box = frame(airports, place);
    drawGrid(box);
    for (const [index, airport] of airports.entries()) {
      const x = box.x(place(airport.longitude)), y = box.y(airport.latitude), code = airport.iata ?? airport.icao;
      const circle = draw("circle", { class: "place", cx: x, cy: y, r: 6 });
      if (index < MAX_NAMES) {
        const isAtEdge = x > WIDTH - PADDING;
        draw("text", { class: "name", x: isAtEdge ? x - 8 : x + 8, y: y + 4, "text-anchor": isAtEdge ? "end" : "start" }, code);
      }
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: code, title: airport.name });
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => choose(airport, button, circle));
      circle.addEventListener("click", () => button.click());
      list.append(Object.assign(document.createElement("li"), {}));
      list.lastElementChild.append(button);
    }
    drawKnown(box, place);
  };

  mcpApp.onToolResult((result) => {
    if (result.isError) {
      status.textContent = (result.content ?? []).map((block) => block.text ?? "").join(" ");
      return;
    }
    const rows = result.structuredContent?.result ?? [];
    show(rows.map((row) => (row.airport ? { ...row.airport, distance: row.distance_km } : row)));
  });
  mcpApp.onToolCancelled(({ reason }) => { status.textContent = reason ?? ""; });
})();
