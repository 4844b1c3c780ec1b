// The client of @modelcontextprotocol/client 2.x reads and verifies each file of each skill of a server, and each
// directory: `node typescript_skills.mjs URL`. It prints the number of skills, files and directories.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';

const client = new Client({ name: 'tests', version: '1' }, { versionNegotiation: { mode: 'auto' } });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const skills = new SkillsClient(client);
if (!skills.directoryRead) throw new Error('the server declares no directories');
const { skills: entries } = await skills.list();
let files = 0;
let directories = 0;

async function walk(uri) {
    directories += 1;
    for (const child of (await skills.readDirectory(uri)).resources) {
        if (child.mimeType === 'inode/directory') await walk(child.uri);
    }
}

for (const entry of entries) {
    const { skill } = await skills.get(entry.uri);
    const paths = skill.resources === 'dynamic' ? [undefined] : skill.resources.map(file => file.uri);
    for (const path of paths) {
        const file = await skills.read(skill, path);
        if (file.verified !== (skill.resources !== 'dynamic')) throw new Error(`${file.uri} is not verified`);
        files += 1;
    }
    if (skill.resources !== 'dynamic') await walk(skill.uri.slice(0, -'/SKILL.md'.length));
}
const spoken = client.getNegotiatedProtocolVersion();
await client.close();
process.stdout.write(`${entries.length} skills, ${files} files, ${directories} directories, ${spoken}`);
