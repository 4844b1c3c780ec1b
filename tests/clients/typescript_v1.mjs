// The client of @modelcontextprotocol/sdk 1.x against a server: each request has WAY, TARGET and CALLS.
// A list of calls is a plan: all are made.
// WAY is http, sse, websocket or stdio; TARGET a URL, or the command as in a client's configuration. It runs where the package is installed: `python -m tests.clients` copies it there.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import {
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    ResourceUpdatedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/ajv';
import { read } from './reader.mjs';
import { answer } from './requests.mjs';
import { CAPABILITIES, Traveller, WATCHED } from './traveller.mjs';

async function check(way, target, calls) {
    const ways = {
        http: () => new StreamableHTTPClientTransport(new URL(target)),
        sse: () => new SSEClientTransport(new URL(target)),
        websocket: () => new WebSocketClientTransport(new URL(target)),
        stdio: () => new StdioClientTransport(JSON.parse(target))
    };
    const traveller = new Traveller();
    const client = new Client({ name: 'tests', version: '1' }, { capabilities: CAPABILITIES });
    client.setRequestHandler(ElicitRequestSchema, request => traveller.elicit(request.params));
    client.setRequestHandler(CreateMessageRequestSchema, request => traveller.sample(request.params));
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, notification => traveller.hear(notification.params));
    const transport = ways[way]();
    // The client says on every transport which revision was agreed; only that of Streamable HTTP keeps it.
    let spoken;
    transport.setProtocolVersion = (set => version => {
        spoken = version;
        set?.call(transport, version);
    })(transport.setProtocolVersion);
    await client.connect(transport);
    const [wanted, validator] = [JSON.parse(calls), new AjvJsonSchemaValidator()];
    const said = Array.isArray(wanted)
        ? await read(client, wanted, validator)
        : await traveller.travel(
              client,
              wanted,
              () => client.subscribeResource({ uri: WATCHED }),
              validator,
              (params, onprogress) => client.callTool(params, undefined, { onprogress })
          );
    await client.close();
    return `${said}, ${spoken}`;
}

await answer(check);
