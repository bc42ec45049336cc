// The token of this tab: from the address that `tabr serve` prints, or typed in.

const KEY = "tabr-token";
const MARK = "#token=";

export const token = () => sessionStorage.getItem(KEY);

/** Keep a token, or the one in the line that was pasted with it. */
export function keepToken(text) {
  const at = text.indexOf(MARK);
  const start = at < 0 ? text : text.slice(at + MARK.length);
  sessionStorage.setItem(KEY, start.trim().split(/\s/)[0]);
}

/** Take the token out of the address bar, so that no history or picture shows it. */
function takeToken() {
  if (!location.hash.startsWith(MARK)) return false;
  keepToken(decodeURIComponent(location.hash));
  history.replaceState(null, "", location.pathname + location.search);
  return true;
}

/** Take a token from the address now, and call `again` when a new one comes there. */
export function watchAddress(again) {
  takeToken();
  addEventListener("hashchange", () => { if (takeToken()) again(); });
}
