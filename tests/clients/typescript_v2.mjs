// The client of @modelcontextprotocol/client 2.x against a server, in one of its modes: `node typescript_v2.mjs URL
// CALLS MODE`. It runs where the package is installed: `python -m tests.clients` copies it there.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { CAPABILITIES, Traveller } from './traveller.mjs';

const [url, calls, mode] = process.argv.slice(2);
const traveller = new Traveller();
const client = new Client({ name: 'tests', version: '1' }, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
client.setRequestHandler('elicitation/create', request => traveller.elicit(request.params));
client.setRequestHandler('sampling/createMessage', request => traveller.sample(request.params));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const said = await traveller.travel(client, JSON.parse(calls));
const spoken = client.getNegotiatedProtocolVersion();
await client.close();
process.stdout.write(`${said}, ${spoken}`);
