/** Goes to the line of the document that a message is about. */

const area = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("document"));

for (const button of document.querySelectorAll("button[data-line]")) {
  button.addEventListener("click", () => {
    if (area) select(area, Number(/** @type {HTMLElement} */ (button).dataset.line));
  });
}

/**
 * @param {HTMLTextAreaElement} text
 * @param {number} number
 */
function select(text, number) {
  const lines = text.value.split("\n");
  const before = lines.slice(0, number - 1);
  const start = before.join("\n").length + (before.length ? 1 : 0);
  text.focus();
  text.setSelectionRange(start, start + (lines[number - 1] ?? "").length);
  text.scrollTop = (text.scrollHeight / lines.length) * Math.max(0, number - 5);
}
