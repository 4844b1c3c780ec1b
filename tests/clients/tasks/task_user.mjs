// The user of the clients of tasks: answers each question, and notes it.

import assert from 'node:assert/strict';

const ANSWERS = {
    'Delete a.txt?': { confirm: true },
    'First name?': { name: 'Ada' },
    'Second name?': { name: 'Bob' }
};
const ENDS = [
    'Computed x in 0.2 seconds',
    'error: The job failed',
    'failed: The job failed with a protocol error',
    'cancelled',
    'Deleted a.txt',
    'Names: Ada, Bob'
];

export class User {
    asked = [];

    elicit(params) {
        this.asked.push(params.message);
        return { action: 'accept', content: ANSWERS[params.message] };
    }

    /** Run the tasks at once, check their ends, and say so. */
    async play(run, cancel) {
        const ends = await Promise.all([
            run('slow_compute', { seconds: 0.2, label: 'x' }),
            run('failing_job'),
            run('protocol_error_job'),
            cancel(),
            run('confirm_delete', { filename: 'a.txt' }),
            run('multi_input')
        ]);
        assert.deepEqual(ends, ENDS);
        assert.deepEqual(this.asked.toSorted(), Object.keys(ANSWERS).toSorted());
        return `${ends.length} tasks, ${this.asked.length} questions answered`;
    }
}
