// The checks of a peer, one after another in one process: a line of JSON with the arguments of each comes in, and one
// with what the check says, or with the reason of its failure, goes out.

import { createInterface } from 'node:readline';

const write = process.stdout.write.bind(process.stdout);
// A library that prints something must not disturb the lines.
process.stdout.write = process.stderr.write.bind(process.stderr);

export async function answer(check) {
    for await (const line of createInterface({ input: process.stdin })) {
        const outcome = await check(...JSON.parse(line)).then(
            said => ({ said }),
            problem => ({ failed: problem?.stack ?? String(problem) })
        );
        write(`${JSON.stringify(outcome)}\n`);
    }
}
