// What this browser keeps for the next visit; it may be switched off, then it holds for this page only.

/** @param {string} place @param {unknown} otherwise where nothing, or nothing of use, is there */
export function kept(place, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(place)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} place @param {unknown} value null: nothing is kept any more */
export function keep(place, value) {
  try {
    if (value === null) localStorage.removeItem(place);
    else localStorage.setItem(place, JSON.stringify(value));
  } catch {
    // storage is off, or full
  }
}
