// A host on the official bridge: `host.open(…)`, `host.setTheme(…)` and `host.close()` for tests.
import { AppBridge, PostMessageTransport, getToolUiResourceUri, isToolVisibilityModelOnly } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const VIEW_TYPE = "text/html;profile=mcp-app";
const info = { name: "strict host", version: "1" };
let client, bridge, frame, endpoint, tools;

async function connect(url) {
  if (url === endpoint) return;
  client = new Client(info, { capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [VIEW_TYPE] } } } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  ({ tools } = await client.listTools());
  endpoint = url;
}

async function readView(uri) {
  const { contents } = await client.readResource({ uri });
  const [content] = contents;
  if (content.uri !== uri || content.mimeType !== VIEW_TYPE) throw new Error(`${content.uri} has the type ${content.mimeType}`);
  return { html: content.text ?? atob(content.blob), csp: content._meta?.ui?.csp ?? {} };
}

async function openFrame(sandbox, csp) {
  frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin");
  frame.src = `${sandbox}?csp=${encodeURIComponent(JSON.stringify(csp))}`;
  const ready = new Promise((resolve) => {
    addEventListener("message", function listen(event) {
      if (event.source !== frame.contentWindow || event.data?.method !== "ui/notifications/sandbox-proxy-ready") return;
      removeEventListener("message", listen);
      resolve();
    });
  });
  document.body.append(frame);
  await ready;
}

globalThis.host = {
  messages: [],
  sizes: [],

  async open(url, sandbox, name, args) {
    await connect(url);
    const tool = tools.find((one) => one.name === name);
    const { html, csp } = await readView(getToolUiResourceUri(tool));
    await openFrame(sandbox, csp);

    const hostContext = { theme: "light", displayMode: "inline", toolInfo: { tool }, containerDimensions: { maxHeight: 5000 } };
    bridge = new AppBridge(client, info, { openLinks: {}, serverTools: {}, serverResources: {}, logging: {} }, { hostContext });
    bridge.onmessage = async (params) => { host.messages.push(params); return {}; };
    bridge.onsizechange = ({ width, height }) => {
      host.sizes.push([width, height]);
      if (height !== undefined) frame.style.height = `${height}px`;
    };
    const initialized = new Promise((resolve) => { bridge.oninitialized = resolve; });
    await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    // The bridge forwards calls by itself since it was connected; a host refuses those of tools for the model.
    bridge.oncalltool = (params) => {
      const called = tools.find((one) => one.name === params.name);
      if (called && isToolVisibilityModelOnly(called)) throw new Error(`${params.name} is for the model`);
      return client.callTool(params);
    };
    const result = client.callTool({ name, arguments: args });
    await bridge.sendSandboxResourceReady({ html });
    await initialized;
    await bridge.sendToolInput({ arguments: args });
    await bridge.sendToolResult(await result);
    return result;
  },

  setTheme: (theme) => bridge.sendHostContextChange({ theme }),

  async close() {
    const answer = await bridge.teardownResource({ reason: "closed" });
    frame.remove();
    return answer;
  },
};
document.body.dataset.ready = "yes";
