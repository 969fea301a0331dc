/** A command line with contradictory options; the exit code is that of a wrong option. */

export class UsageError extends Error {}
