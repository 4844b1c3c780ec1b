// The client of @modelcontextprotocol/client 2.x against a server, in one of its modes: each request has WAY,
// TARGET, CALLS and MODE. WAY is http, sse or stdio; TARGET a URL, or the command as in a client's configuration. It runs
// where the package is installed: `python -m tests.clients` copies it there. A list of calls is a plan: all are made.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/client/validators/ajv';
import { read } from './reader.mjs';
import { answer } from './requests.mjs';
import { CAPABILITIES, Traveller, WATCHED } from './traveller.mjs';

async function check(way, target, calls, mode) {
    const ways = {
        http: () => new StreamableHTTPClientTransport(new URL(target)),
        sse: () => new SSEClientTransport(new URL(target)),
        stdio: () => new StdioClientTransport(JSON.parse(target))
    };
    const traveller = new Traveller();
    const client = new Client({ name: 'tests', version: '1' }, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
    client.setRequestHandler('elicitation/create', request => traveller.elicit(request.params));
    client.setRequestHandler('sampling/createMessage', request => traveller.sample(request.params));
    client.setNotificationHandler('notifications/resources/updated', notification => traveller.hear(notification.params));
    await client.connect(ways[way]());
    const spoken = client.getNegotiatedProtocolVersion();
    const subscribe = () =>
        client.getProtocolEra() === 'legacy' ? client.subscribeResource({ uri: WATCHED }) : client.listen({ resourceSubscriptions: [WATCHED] });
    const [wanted, validator] = [JSON.parse(calls), new AjvJsonSchemaValidator()];
    const said = Array.isArray(wanted)
        ? await read(client, wanted, validator)
        : await traveller.travel(client, wanted, subscribe, validator, (params, onprogress) =>
              client.callTool(params, { onprogress })
          );
    await client.close();
    return `${said}, ${spoken}`;
}

await answer(check);
