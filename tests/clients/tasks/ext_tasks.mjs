// Tasks with @modelcontextprotocol/ext-tasks: `node ext_tasks.mjs http URL CALLS MODE`.
// MODE is legacy for the core tasks of 2025-11-25, or auto for the extension. It runs where the packages are installed.

import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';
import { User } from './task_user.mjs';

const [, target, , mode] = process.argv.slice(2);
const user = new User();
const clientInfo = { name: 'tests', version: '1' };
const capabilities = { elicitation: { form: {} } };
const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(target)));

let requests = 0;

/** Send a request of the extension, which the client itself does not know. */
async function rawDispatch(request, options) {
    const headers = {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': client.getNegotiatedProtocolVersion(),
        'mcp-method': request.method,
        'mcp-name': request.params.taskId ?? request.params.name
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: ++requests, ...request });
    const text = await (await fetch(target, { method: 'POST', headers, body, signal: options?.signal })).text();
    // A call that asks before it becomes a task may answer with a stream.
    const { result, error } = JSON.parse(text.startsWith('{') ? text : text.match(/^data: (\{.*)$/m)[1]);
    return error === undefined ? { kind: 'result', result } : { kind: 'error', error };
}

const framing = {
    protocolVersion: client.getNegotiatedProtocolVersion(),
    clientInfo,
    clientCapabilities: { ...capabilities, extensions: { 'io.modelcontextprotocol/tasks': {} } }
};
const session = createTaskSessionFromClient(client, {
    endpointId: 'tested',
    onInputRequest: async request => user.elicit(request.params),
    ...(mode === 'auto' ? { rawDispatch, v2RequestFraming: framing } : {})
});

async function run(name, args = {}) {
    const execution = await session.callTool(name, args, { task: { preference: 'prefer' } });
    assert.equal(execution.kind, 'task', name);
    const { outcome } = await execution.settle();
    // Of a core task that failed the client knows no more than the status message.
    if (outcome.status === 'failed') return `${name === 'failing_job' ? 'error' : 'failed'}: ${outcome.error.message}`;
    return `${outcome.result.isError ? 'error: ' : ''}${outcome.result.content[0].text}`;
}

async function cancel() {
    const execution = await session.callTool('slow_compute', { seconds: 60 }, { task: { preference: 'prefer' } });
    await execution.cancel();
    return (await execution.result()).status;
}

const said = await user.play(run, cancel);
await session.close();
await client.close();
process.stdout.write(`${said}, ${framing.protocolVersion}`);
