/** Light or dark as the system says, or as was chosen in this browser. */

const choice = /** @type {HTMLSelectElement} */ (document.getElementById("theme"));

/** @param {string} theme */
function show(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

choice.value = localStorage.getItem("theme") ?? "";
show(choice.value);
choice.addEventListener("change", () => {
  localStorage.setItem("theme", choice.value);
  show(choice.value);
});
