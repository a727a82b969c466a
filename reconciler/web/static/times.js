/** Moments in the reader's time zone. What the server wrote, in UTC, stays in `datetime`, and is what pointing at one says. */

const YEAR = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const SHORT = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A moment as the server writes it, here. What is none stays as it is. @param {string} written */
export function localTime(written) {
  const moment = new Date(written);
  if (!/^\d{4}-\d\d-\d\dT.*Z$/.test(written) || Number.isNaN(moment.getTime())) return written;
  return (moment.getFullYear() === new Date().getFullYear() ? SHORT : YEAR).format(moment);
}

/** @param {HTMLTimeElement} element */
function tell(element) {
  const written = (element.textContent ?? "").trim();
  const told = localTime(written);
  // Its own text is no moment as the server writes them, and stays.
  if (told === written) return;
  element.dateTime = written;
  element.title = written;
  element.textContent = told;
}

/** @param {ParentNode} within */
function tellAll(within) {
  for (const element of within.querySelectorAll("time")) tell(element);
}

tellAll(document);
const zone = document.getElementById("zone");
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && here !== "UTC") zone.textContent = `Times are in ${here}; point at one for UTC.`;
// What is changed later, too: a text that was told is none that is told again.
new MutationObserver((changes) => {
  for (const { target } of changes) {
    const element = target instanceof Element ? target : target.parentElement;
    if (element instanceof HTMLTimeElement) tell(element);
    else if (element) tellAll(element);
  }
}).observe(document.body, { childList: true, characterData: true, subtree: true });
