// A view's settings in its address, so that a bookmark, a reload and a link that is passed on show the same.

/** Puts settings into the address, without those that are as they begin. @param {string} address the view's own, `#/...`
 * @param {{[name: string]: string | number}} settings "" and 0: as it begins @returns {string} their part of it */
export function keepSettings(address, settings) {
  const query = new URLSearchParams(Object.entries(settings).filter(([, value]) => value));
  const part = query.size ? `?${query}` : "";
  history.replaceState(null, "", address + part);
  return part;
}
