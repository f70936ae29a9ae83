// Settings in the browser's storage. Without storage they last as long as the page.

/** @param {string} place @param {unknown} otherwise the default */
export function kept(place, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(place)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} place @param {unknown} value null removes the setting */
export function keep(place, value) {
  try {
    if (value === null) localStorage.removeItem(place);
    else localStorage.setItem(place, JSON.stringify(value));
  } catch {
    // storage is off, or full
  }
}
