/**
 * Brings a part of this page to what the server would send now, in place: what stays keeps the focus, its scrolling, and whether it is open.
 *
 * The page is asked for as a document. No text is made into markup: Trusted Types forbid that, and nothing here gets around them.
 * It is the same page of the same server that was loaded before, and what could run or load something is refused.
 */

const FOREIGN = "script, style, link, meta, base, iframe, object, embed, template";
/** What the user does to an element, and no page says. */
const OWN = new Set(["open"]);

/** The main part of this page, as it is now. @returns {Promise<Element>} */
function asked() {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.pathname + location.search);
    request.responseType = "document";
    request.onerror = () => reject(new Error("the server does not answer"));
    request.onload = () => {
      const page = request.responseXML;
      const main = page?.getElementById("main");
      const isHere = new URL(request.responseURL).pathname === location.pathname;
      if (!isHere) reject(new Error("your session is over"));
      else if (request.status !== 200) reject(new Error(main?.querySelector(".problem")?.textContent || `the server answers ${request.status}`));
      else if (!main || main.querySelector(FOREIGN)) reject(new Error("the page is another: load it again"));
      else resolve(main);
    };
    request.send();
  });
}

/** Raises Error with what is wrong. @param {HTMLElement} main */
export async function update(main) {
  // Another address than was asked for may be shown meanwhile.
  let at, fresh;
  do {
    at = location.search;
    fresh = await asked();
  } while (at !== location.search);
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const wasInside = focused && main.contains(focused);
  mend(main, fresh);
  if (!wasInside || document.activeElement === focused) return;
  // It was moved, or is gone: nobody is to begin at the top of the page again.
  const target = focused.isConnected ? focused : main;
  if (target === main) main.tabIndex = -1;
  target.focus({ preventScroll: true });
}

/** Whether something is being done in it that should not be disturbed. @param {HTMLElement} main */
export function isInUse(main) {
  const selected = getSelection();
  const selects = selected && !selected.isCollapsed && main.contains(selected.anchorNode);
  return Boolean(selects || main.querySelector("details[open] form, :active, form:not(.filter) :focus"));
}

/** @param {Element} old @param {Element} fresh */
function mend(old, fresh) {
  // Filters are as the user left them; other parts have a module that sees to them.
  if (old.matches("form.filter, [data-own]")) return;
  for (const { name, value } of fresh.attributes) {
    if (!name.startsWith("on") && name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !OWN.has(name) && old.id !== "main") old.removeAttribute(name);
  }
  const known = new Map([...old.children].map((child) => [keyOf(child), child]));
  const kept = new Set([...fresh.children].map(keyOf));
  // What goes, goes first: then what stays need not be moved, which would take the focus away.
  for (const [key, child] of known) if (key && !kept.has(key)) child.remove();
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const there = partner(wanted, at, known);
    if (!there) {
      old.insertBefore(document.importNode(wanted, true), at);
      continue;
    }
    if (there === at) at = at.nextSibling;
    else old.insertBefore(there, at);
    if (there instanceof Element && wanted instanceof Element) mend(there, wanted);
    else if (there.nodeValue !== wanted.nodeValue) there.nodeValue = wanted.nodeValue;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/**
 * What is to become the wanted one: the one with its key, or the next one if neither has any.
 * @param {ChildNode} wanted @param {ChildNode | null} at @param {Map<string, Element>} known
 */
function partner(wanted, at, known) {
  const key = wanted instanceof Element ? keyOf(wanted) : "";
  if (key) {
    const there = known.get(key);
    known.delete(key);
    return there;
  }
  return at && at.nodeName === wanted.nodeName && !(at instanceof Element && keyOf(at)) ? at : null;
}

/** What an element is about; "": it is known by its place. @param {Element} element */
function keyOf(element) {
  const name = element.id || element.getAttribute("aria-labelledby") || element.getAttribute("data-key");
  if (name) return `${element.nodeName} ${name}`;
  if (element.nodeName !== "TR") return "";
  return `TR ${element.className} ${element.querySelector("th")?.textContent}`;
}
