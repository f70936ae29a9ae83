// Downloads, with names that every system accepts.

/** Makes a file name of the names of jobs and keys. @param {string[]} parts @param {string} suffix */
export function fileName(parts, suffix) {
  const letters = (part) => part.normalize("NFKD").replace(/[^A-Za-z0-9._-]+/g, "-");
  const plain = parts.map((part) => letters(part).replace(/^[-.]+|-+$/g, ""));
  return `${plain.filter(Boolean).join("-").slice(0, 100) || "graph"}.${suffix}`;
}

/** Saves a blob. @param {Blob} blob @param {string} name */
export function saveBlob(blob, name) {
  const address = URL.createObjectURL(blob);
  saveFrom(address, name);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** @param {string} address of this page's server, or a blob's @param {string} name "" for the server's own name */
export function saveFrom(address, name = "") {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}
