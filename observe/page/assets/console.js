// The job's lines. Called by job.js: context has `job`, `follow`, `go`, `failed`, `answered`.

export function show(root, context) {
  return { close() {} };
}
