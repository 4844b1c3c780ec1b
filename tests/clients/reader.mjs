// What the TypeScript clients of either generation do with odd rows: compile each schema that is listed with the SDK's
// own validator, and make each call of a plan. The client checks each structured result by itself, and refuses it.

import assert from 'node:assert/strict';

export function compileSchemas(tools, validator) {
    const schemas = tools.flatMap(tool => [tool.inputSchema, tool.outputSchema]).filter(Boolean);
    for (const schema of schemas) validator.getValidator(schema);
    return schemas.length;
}

export async function read(client, plan, validator) {
    const { tools } = await client.listTools();
    const schemas = compileSchemas(tools, validator);
    const refusals = [];
    for (const [name, given] of plan) {
        try {
            const result = await client.callTool({ name, arguments: given });
            assert(!result.isError, JSON.stringify(result.content));
            assert(result.structuredContent, `${name} has no structured content`);
        } catch (problem) {
            refusals.push(`${name} ${JSON.stringify(given)}: ${problem.message}`);
        }
    }
    assert.equal(refusals.length, 0, `${refusals.length} refusals of ${plan.length}, such as ${refusals.slice(0, 3).join('; ')}`);
    return `${tools.length} tools, ${schemas} schemas compiled, ${plan.length} results read`;
}
