// What the TypeScript clients of either generation do with a server: list, call, and where the fixtures are served watch
// a resource, and the one handler that asks, loops, samples and books. Every check throws on failure.

import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';

import { compileSchemas } from './reader.mjs';

const ANSWERS = new Map([
    ['Who travels?', { name: 'Ada', cabin: 'first' }],
    ['Another stop after 0?', { value: true }],
    ['Which stop?', { value: 'Bergen' }],
    ['Another stop after 1?', { value: false }],
    ['Confirm?', { value: true }]
]);
const JOURNEY = /^Ada \(first\) via Bergen: 100 km, confirmed, booking (\d+)$/;

export const WATCHED = 'test://watched-resource';
export const CAPABILITIES = { elicitation: { form: {} }, sampling: { tools: {} } };

export class Traveller {
    asked = [];
    told = [];

    // A client that is told of a change.
    hear(params) {
        this.told.push(params.uri);
    }

    // The person: an ElicitResult.
    elicit(params) {
        this.asked.push(params.message);
        const content = ANSWERS.get(params.message);
        assert(content, `nobody knows the answer to ${params.message}`);
        return { action: 'accept', content };
    }

    // The model: it uses the tool that it is offered, then says what came of it.
    sample(params) {
        const content = params.messages.at(-1).content;
        const last = Array.isArray(content) ? content[0] : content;
        if (last.type === 'tool_result') {
            const said = { type: 'text', text: last.content[0].text };
            return { role: 'assistant', model: 'm', content: said, stopReason: 'endTurn' };
        }
        assert.deepEqual(params.tools.map(tool => tool.name), ['distance']);
        const use = { type: 'tool_use', id: 'u1', name: 'distance', input: { stops: 1 } };
        return { role: 'assistant', model: 'm', content: [use], stopReason: 'toolUse' };
    }

    // List and call with a connected client that watches with `subscribe`; what to print. Each schema has to compile.
    // `call` calls a tool with a function for its progress.
    async travel(client, calls, subscribe, validator, call) {
        const { tools } = await client.listTools();
        const schemas = compileSchemas(tools, validator);
        const names = tools.map(tool => tool.name);
        const name = Object.keys(calls).find(known => names.includes(known));
        assert(name, `none of ${Object.keys(calls)} is among ${names}`);
        const result = await client.callTool({ name, arguments: calls[name] });
        assert(!result.isError && result.content.length > 0, JSON.stringify(result));
        if (names.includes('plan_journey')) {
            await this.follow(call);
            await subscribe();
            await this.watch(client);
            const [first, second] = [await this.journey(client), await this.journey(client)];
            assert.equal(second, first + 1, 'it books once a call, however many rounds a call takes');
        }
        return `${names.length} tools, ${schemas} schemas compiled, ${name} called, ${this.asked.length} questions answered`;
    }

    // A call whose result comes right after its last progress. This SDK drops progress that it reads together with it.
    async follow(call) {
        const steps = [];
        await call({ name: 'test_tool_with_progress', arguments: {} }, params => steps.push(params.progress));
        assert.deepEqual(steps, [0, 50, 100]);
    }

    // The stream of a session is opened by the client itself, which does not say when: so it is tried more than once.
    async watch(client) {
        for (let tries = 0; tries < 20 && this.told.length === 0; tries++) {
            await client.callTool({ name: 'touch_watched_resource', arguments: {} });
            for (let waits = 0; waits < 10 && this.told.length === 0; waits++) await pause(50);
        }
        assert.equal(this.told[0], WATCHED);
    }

    async journey(client) {
        this.asked.length = 0;
        const result = await client.callTool({ name: 'plan_journey', arguments: {} });
        const told = JOURNEY.exec(result.content[0].text);
        assert(told, JSON.stringify(result));
        assert.deepEqual(this.asked, [...ANSWERS.keys()]);
        return Number(told[1]);
    }
}
