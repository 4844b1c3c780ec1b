// Core tasks with @modelcontextprotocol/sdk 1.x: `node sdk_tasks.mjs http URL`. It runs where the package is installed.

import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { User } from './task_user.mjs';

const user = new User();
const client = new Client({ name: 'tests', version: '1' }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(ElicitRequestSchema, request => user.elicit(request.params));
const transport = new StreamableHTTPClientTransport(new URL(process.argv[3]));
await client.connect(transport);
const tasks = client.experimental.tasks;

/** Call a tool as a task; the client polls, and opens `tasks/result` when the task asks. */
async function run(name, args = {}) {
    const stream = tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: { ttl: 60_000 } });
    let id;
    for await (const message of stream) {
        if (message.type === 'taskCreated') id = message.task.taskId;
        if (message.type === 'result') {
            assert(id, `${name} was no task`);
            return describe(message.result);
        }
        if (message.type === 'error') {
            // The stream ends without the reason, which `tasks/result` has.
            return tasks.getTaskResult(id, CallToolResultSchema).then(describe, problem => `failed: ${problem.message.replace('MCP error 1001: ', '')}`);
        }
    }
}

function describe(result) {
    return `${result.isError ? 'error: ' : ''}${result.content[0].text}`;
}

async function cancel() {
    const params = { name: 'slow_compute', arguments: { seconds: 60 }, task: { ttl: 60_000 } };
    const { task } = await client.request({ method: 'tools/call', params }, CreateTaskResultSchema);
    await tasks.cancelTask(task.taskId);
    assert((await tasks.listTasks()).tasks.some(listed => listed.taskId === task.taskId));
    return (await tasks.getTask(task.taskId)).status;
}

await client.listTools();
const said = await user.play(run, cancel);
await client.close();
process.stdout.write(`${said}, 2025-11-25`);
