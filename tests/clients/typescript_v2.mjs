// The client of @modelcontextprotocol/client 2.x against a server, in one of its modes: `node typescript_v2.mjs URL
// CALLS MODE`. It runs where the package is installed: `python -m tests.clients` copies it there.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { CAPABILITIES, Traveller, WATCHED } from './traveller.mjs';

const [url, calls, mode] = process.argv.slice(2);
const traveller = new Traveller();
const client = new Client({ name: 'tests', version: '1' }, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
client.setRequestHandler('elicitation/create', request => traveller.elicit(request.params));
client.setRequestHandler('sampling/createMessage', request => traveller.sample(request.params));
client.setNotificationHandler('notifications/resources/updated', notification => traveller.hear(notification.params));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const spoken = client.getNegotiatedProtocolVersion();
const subscribe = () =>
    mode === 'legacy' ? client.subscribeResource({ uri: WATCHED }) : client.listen({ resourceSubscriptions: [WATCHED] });
const said = await traveller.travel(client, JSON.parse(calls), subscribe);
await client.close();
process.stdout.write(`${said}, ${spoken}`);
