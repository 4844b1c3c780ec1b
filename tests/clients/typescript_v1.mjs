// The client of @modelcontextprotocol/sdk 1.x against a server: `node typescript_v1.mjs URL CALLS`.
// It runs where the package is installed: `python -m tests.clients` copies it there.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    ResourceUpdatedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';
import { CAPABILITIES, Traveller, WATCHED } from './traveller.mjs';

const [url, calls] = process.argv.slice(2);
const traveller = new Traveller();
const client = new Client({ name: 'tests', version: '1' }, { capabilities: CAPABILITIES });
client.setRequestHandler(ElicitRequestSchema, request => traveller.elicit(request.params));
client.setRequestHandler(CreateMessageRequestSchema, request => traveller.sample(request.params));
client.setNotificationHandler(ResourceUpdatedNotificationSchema, notification => traveller.hear(notification.params));
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const said = await traveller.travel(client, JSON.parse(calls), () => client.subscribeResource({ uri: WATCHED }));
await client.close();
process.stdout.write(`${said}, ${transport.protocolVersion}`);
