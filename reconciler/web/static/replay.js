/** Says what came of a replay that is under way, once it is known. Without it the page is loaded again by hand. */

const told = /** @type {HTMLElement} */ (document.getElementById("replayed"));

async function look() {
  let found;
  try {
    const answer = await fetch(/** @type {string} */ (told.dataset.at), { cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    found = await answer.json();
  } catch {
    told.textContent = "The server does not answer. Load the page again to see what came of it.";
    return;
  }
  if (found.state === "runs") {
    setTimeout(look, 500);
    return;
  }
  told.textContent = found.words;
  told.dataset.state = found.state;
}

if (told.dataset.state === "runs") look();
