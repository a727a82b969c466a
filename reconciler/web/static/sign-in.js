/** Says so where the browser would not keep the session's cookie: only it knows, since a proxy may speak HTTPS for the server. */

const told = /** @type {HTMLElement} */ (document.getElementById("insecure"));
told.hidden = window.isSecureContext;
