/** A command line that asks for something contradictory; the exit code is that of a wrong option. */

export class UsageError extends Error {}
