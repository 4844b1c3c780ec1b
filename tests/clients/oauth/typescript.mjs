// A TypeScript client of either generation on the protected site: `node typescript.mjs MAJOR URL MODE [DOCUMENT]`.
// It asks for consent by a line "authorize URL" on its output, and is told on its input where the browser was sent. It
// runs where the package is installed: `python -m tests.clients` copies it there. Every check throws on failure.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';

const [major, url, mode, document] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, UnauthorizedError } =
    major === '1'
        ? {
              ...(await import('@modelcontextprotocol/sdk/client/index.js')),
              ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
              ...(await import('@modelcontextprotocol/sdk/client/auth.js'))
          }
        : await import('@modelcontextprotocol/client');
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// What a client keeps, and its way to the person.
class Provider {
    redirectUrl = 'http://localhost:3999/callback';
    clientMetadataUrl = document;
    clientMetadata = {
        client_name: `TypeScript ${major}`,
        redirect_uris: [this.redirectUrl],
        token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code']
    };
    asked = 0;

    state = () => (this.expected = randomUUID());
    clientInformation = () => this.information;
    saveClientInformation = information => void (this.information = information);
    tokens = () => this.held;
    saveTokens = tokens => void (this.held = tokens);
    codeVerifier = () => this.verifier;
    saveCodeVerifier = verifier => void (this.verifier = verifier);
    discoveryState = () => this.discovered;
    saveDiscoveryState = discovered => void (this.discovered = discovered);
    redirectToAuthorization = address => {
        this.asked += 1;
        process.stdout.write(`authorize ${address}\n`);
    };

    // Where the browser came back to.
    async returned() {
        const { value } = await input.next();
        const said = new URL(value).searchParams;
        assert.equal(said.get('state'), this.expected);
        assert(said.get('code'), value);
        return said;
    }
}

const provider = new Provider();
let transport;

// Do it, and once more when the person has consented.
async function authorized(action) {
    try {
        return await action();
    } catch (problem) {
        if (!(problem instanceof UnauthorizedError) && !(problem.cause instanceof UnauthorizedError)) throw problem;
        const said = await provider.returned();
        await transport.finishAuth(major === '1' ? said.get('code') : said);
        return await action();
    }
}

async function connected() {
    const options = major === '1' ? {} : { versionNegotiation: { mode } };
    const client = new Client({ name: 'tests', version: '1' }, options);
    transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
    await client.connect(transport);
    return client;
}

const said = result => result.content[0].text;
const client = await authorized(connected);
const names = (await client.listTools()).tools.map(tool => tool.name);
assert.deepEqual(names, ['change', 'look']);
assert.equal(said(await client.callTool({ name: 'look' })), 'alice looks');
// 1.x refreshes its token where it ought to ask for another, if it can, and then gives up.
if (major === '1') delete provider.held.refresh_token;
assert.equal(said(await authorized(() => client.callTool({ name: 'change' }))), 'alice changes');
const first = provider.held;
assert.deepEqual(first.scope.split(' ').filter(scope => scope.startsWith('shop:')).sort(), ['shop:read', 'shop:write']);
// A token that the server does not take any more is refreshed, and nobody is asked.
provider.held = { ...first, access_token: 'mcp_at_expired' };
assert.equal(said(await client.callTool({ name: 'change' })), 'alice changes');
assert.notEqual(provider.held.refresh_token, first.refresh_token);
assert.equal(provider.asked, 2);
if (document) assert.equal(provider.information.client_id, document);
const spoken = major === '1' ? transport.protocolVersion : client.getNegotiatedProtocolVersion();
await client.close();
process.stdout.write(`done ${names.length} tools, asked ${provider.asked} times, ${spoken}\n`);
process.exit(0);
