// The job's metadata as a table. Called by job.js: context has `job`, `follow`, `go`, `failed`, `answered`.

export function show(root, context) {
  return { close() {} };
}
