"use strict";
// Shows the app of a tool below the result of its run. The calls of the app are runs of the playground.
(() => {
  const MAX_RUNS = 20;
  const playground = window.playgroundRuns, section = document.getElementById("playground-app");
  if (!playground || !section || !window.mcpAppHost) return;
  const { area, Run } = playground;
  const texts = section.querySelector("[data-app-part=texts]").dataset;
  const list = document.getElementById("playground-app-runs"), template = document.getElementById("playground-app-run");
  const running = new Set();
  let app = null;
  let count = 0;

  const fail = (code, message) => ({ error: { code, message } });

  // Runs a request of the app, and shows its progress and its questions until it has a response.
  const send = (method, params) => new Promise((resolve) => {
    if (running.size >= MAX_RUNS) return resolve(fail(-32000, texts.many));
    const isCall = method === "tools/call";
    const name = String((isCall ? params.name : params.uri) ?? "");
    const root = template.content.cloneNode(true).firstElementChild;
    list.append(root);
    const kind = isCall ? "tools" : "resources";
    const finish = (response, end) => {
      running.delete(run);
      run.remove();
      resolve(response ?? fail(-32000, end === "refused" ? texts.refused : texts.failed));
    };
    const label = `${texts.app} ${++count}: ${name}, `;
    const run = new Run(root, { url: `?${new URLSearchParams({ ...app.query, kind, name })}`, label, onResponse: finish });
    running.add(run);
    run.part("title").textContent = name;
    const body = new FormData();
    body.set("csrfmiddlewaretoken", document.querySelector("[name=csrfmiddlewaretoken]").value);
    body.set("act", "app");
    body.set("app", app.tool.name);
    body.set("revision", app.revision);
    body.set("log_level", app.log_level);
    body.set("arguments", JSON.stringify(params.arguments ?? {}));
    run.send(body).then((hasEvents) => { if (!hasEvents) finish(fail(-32602, `${name}: ${texts.unknown}`)); });
  });

  const onClose = () => {
    for (const run of running) run.refuse();
    count = 0;
  };
  const host = new window.mcpAppHost.AppHost(section, { name: "mcp_django playground", send, onClose });

  const open = () => {
    const data = document.getElementById("playground-app-data");
    section.hidden = !data;
    if (!data) return;
    app = JSON.parse(data.textContent);
    host.open({ source: app.source, tool: app.tool, input: app.input, response: Promise.resolve({ result: app.result }) });
  };

  area.addEventListener("playground:start", () => {
    section.hidden = true;
    host.close();
  });
  area.addEventListener("playground:end", open);
  open();
})();
