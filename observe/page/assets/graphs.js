// Numbers of the job's metadata over time or an X. Called by job.js: context has `job`, `follow`, `go`, `failed`, `answered`.

export function show(root, context) {
  return { close() {} };
}
