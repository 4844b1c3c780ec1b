"use strict";
// The preview page: calls a tool as the user, and shows its app in the host.
(() => {
  const byId = (id) => document.getElementById(id);
  const form = byId("call");
  if (!form) return;

  const data = JSON.parse(byId("preview-data").textContent);
  const texts = byId("texts").dataset;
  const show = (element, value) => { element.textContent = typeof value === "string" ? value : JSON.stringify(value, null, 2); };
  const getTool = () => data.tools[form.elements.tool.value];

  async function sendToServer(method, params, visibility) {
    const body = new FormData();
    body.set("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
    body.set("server", data.server);
    body.set("visibility", visibility);
    body.set("request", JSON.stringify({ method, params }));
    try {
      const response = await fetch(form.dataset.request, { method: "POST", body, credentials: "same-origin" });
      return await response.json();
    } catch (problem) {
      return { error: { code: -32000, message: `${texts.failed} ${problem.message}` } };
    }
  }

  const host = new window.mcpAppHost.AppHost(byId("preview"), {
    name: "mcp_django preview",
    send: (method, params) => sendToServer(method, params, "app"),
  });

  async function callTool(name, args) {
    for (const id of ["content", "result"]) byId(id).replaceChildren();
    const response = await sendToServer("tools/call", { name, arguments: args }, "model");
    const blocks = response.result?.content ?? [];
    show(byId("content"), response.error?.message ?? blocks.map((block) => block.text ?? `[${block.type}]`).join("\n\n"));
    show(byId("result"), response.result ?? response.error);
    return response;
  }

  function openApp(args) {
    const { uri, definition } = getTool();
    const source = `${form.dataset.frame}?${new URLSearchParams({ server: data.server, uri })}`;
    host.open({ source, tool: definition, input: args, response: callTool(definition.name, args) });
  }

  function readArguments() {
    try {
      const value = JSON.parse(byId("arguments").value || "{}");
      return value && typeof value === "object" && !Array.isArray(value) ? value : null;
    } catch {
      return null;
    }
  }

  function fillExample() {
    byId("arguments").value = JSON.stringify(getTool().example, null, 2);
  }

  byId("tool").addEventListener("change", fillExample);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const args = readArguments();
    show(byId("arguments-error"), args ? "" : texts.invalid);
    byId("arguments").setAttribute("aria-invalid", String(!args));
    if (args) openApp(args);
    else byId("arguments").focus();
  });
  if (data.arguments) byId("arguments").value = data.arguments;
  else fillExample();
})();
