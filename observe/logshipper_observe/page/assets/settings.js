// A view's settings in its address, for bookmarks, reloads and shared links.

/** Puts settings into the address, except defaults. @param {string} address of the view, `#/...`
 * @param {{[name: string]: string | number}} settings "" and 0 are defaults @returns {string} their part of it */
export function keepSettings(address, settings) {
  const query = new URLSearchParams(Object.entries(settings).filter(([, value]) => value));
  const part = query.size ? `?${query}` : "";
  history.replaceState(null, "", address + part);
  return part;
}
