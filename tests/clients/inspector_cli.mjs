// The command line of the Inspector, which prints the result of a method: each request has its arguments. It runs where
// the package is installed.

import { runCli } from '@modelcontextprotocol/inspector/clients/cli/build/index.js';
import { answer } from './requests.mjs';

async function run(...args) {
    const write = process.stdout.write;
    let printed = '';
    process.stdout.write = (text, ...rest) => {
        printed += text;
        rest.find(each => typeof each === 'function')?.();
        return true;
    };
    try {
        await runCli([process.execPath, 'inspector', ...args]);
    } finally {
        process.stdout.write = write;
    }
    return printed;
}

await answer(run);
